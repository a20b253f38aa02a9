"""Random commands, valid and malformed, on two devices whose results are compared."""
