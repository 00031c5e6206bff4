"""Other programs' formats, made of a manifest alone."""
