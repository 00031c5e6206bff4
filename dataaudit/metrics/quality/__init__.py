"""What rules of quality would reject."""
