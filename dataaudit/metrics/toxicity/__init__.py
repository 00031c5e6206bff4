"""Toxic documents: a screen of all, a judge of a sample."""
