"""What changed between two manifests, how much of it is noise, and which version bump it means."""
