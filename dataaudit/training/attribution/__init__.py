"""From a run log and its manifest to findings: which data an excess lies in, and tests of the whole run."""
