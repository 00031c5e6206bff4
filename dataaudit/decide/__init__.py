"""Decisions from manifests: the release gate, the difference of two manifests, the quarantine list."""
