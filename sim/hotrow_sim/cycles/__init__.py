"""How many cycles each unit takes, without simulating it."""
