"""Random command sequences, sound and malformed, played on any two devices to compare them."""
