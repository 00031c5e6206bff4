"""What padding and packing waste."""
