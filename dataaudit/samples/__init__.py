"""``--samples``: the words around some findings, masked, in a folder for the user's eyes alone."""
