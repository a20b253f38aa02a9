"""Memory bits of each unit, as functions of the configuration."""
