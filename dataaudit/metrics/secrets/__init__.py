"""Secrets: keys, tokens, passwords."""
