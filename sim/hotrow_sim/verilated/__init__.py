"""The accelerator's Verilog as a compiled library in this process: the transport `sim`."""
