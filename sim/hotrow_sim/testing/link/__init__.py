"""The card's end of a link as a golden model, and lines to reach it: pseudo-terminal, socket."""
