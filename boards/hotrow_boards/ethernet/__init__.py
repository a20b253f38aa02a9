"""A card in a network: datagrams over gigabit Ethernet, each of which carries a frame."""
