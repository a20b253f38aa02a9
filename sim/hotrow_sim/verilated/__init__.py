"""The accelerator's own Verilog, compiled and called in process: the transport `sim`."""
