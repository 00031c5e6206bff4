"""Link: what was emitted by key meets here, one partition of the keys at a time."""
