"""Units that stand alone: parts of the accelerator with plain streams or AXI4 at their edge."""
