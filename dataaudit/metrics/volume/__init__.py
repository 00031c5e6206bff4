"""How much there is, of which source."""
