"""A board's DRAM as the memory of the card: LiteDRAM, brought up by gateware."""
