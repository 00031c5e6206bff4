"""Spans that stand in many training documents."""
