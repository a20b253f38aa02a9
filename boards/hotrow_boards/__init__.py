"""From the accelerator's Verilog to FPGAs, with the open tools."""
