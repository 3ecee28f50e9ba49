"""What all families share: structures, integer strategies, their answers and certificates."""
