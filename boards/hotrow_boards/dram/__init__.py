"""A board's DRAM as the memory of the card: LiteDRAM, initialised and levelled by gateware."""
