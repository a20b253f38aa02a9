"""Cards on PCI Express: registers in a BAR; the card reads and writes the host's memory."""
