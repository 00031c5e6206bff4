"""Personal data: entities, what is known of their values, and the judge of a sample."""
