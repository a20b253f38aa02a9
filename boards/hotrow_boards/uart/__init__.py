"""A serial line as the carrier of a link's frames."""
