"""Training with PyTorch: a DLRM, hotline beside its plain reference, and the check between them."""
