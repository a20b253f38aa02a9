"""Cards that do not share the host's memory: frames, sessions, and copies of the host's arrays."""
