"""From a run log and its manifest to findings: which data caused a spike, and what the whole run says."""
