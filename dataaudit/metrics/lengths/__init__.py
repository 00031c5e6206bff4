"""Lengths of documents, in tokens and bytes per token."""
