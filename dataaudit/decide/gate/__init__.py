"""The release gate: a policy, a manifest, a verdict that explains itself."""
