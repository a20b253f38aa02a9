"""A card on gigabit Ethernet: UDP datagrams that carry one frame each."""
