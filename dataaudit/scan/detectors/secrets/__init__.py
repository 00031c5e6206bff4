"""Secrets in documents: keys, tokens and passwords, by rules and by what their issuers put into them."""
