"""Golden model of the card's link endpoint, served on a pseudo-terminal or a socket."""
