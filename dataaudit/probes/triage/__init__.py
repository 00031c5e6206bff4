"""Triage of a silent regression: evaluation artifacts, data, internal behaviour, architecture, in this order."""
