"""Golden model of a card on a link: its endpoint, its memory, and a channel to them."""
