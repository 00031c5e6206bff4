"""Finding entities by patterns: rules in YAML, one pass over the text, exact checks of what it meets."""
