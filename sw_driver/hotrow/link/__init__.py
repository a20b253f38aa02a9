"""Cards that share no memory with the host: frames, sessions, and the card's memory kept alike."""
