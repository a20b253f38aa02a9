"""A serial line that carries the frames of a link."""
