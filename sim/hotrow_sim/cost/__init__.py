"""What each unit costs in memory, as functions of the configuration."""
