"""What was planned and not read."""
