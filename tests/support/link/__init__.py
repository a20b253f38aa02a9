"""The golden link endpoint, served on a pseudo-terminal or a socket."""
