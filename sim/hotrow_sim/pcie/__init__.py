"""A card on PCI Express: Verilated with its bridge, and served to other processes."""
