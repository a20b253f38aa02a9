"""The card's end of a link: bytes in, registers and memory reached, bytes out."""
