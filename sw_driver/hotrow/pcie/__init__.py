"""Cards behind PCI Express: registers in a BAR, and the host's own memory reached by the card."""
