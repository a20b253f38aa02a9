"""The card's end of a link: frames from the host become register and memory accesses."""
