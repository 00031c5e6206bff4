"""The live run: heartbeats of ranks, error events of logs."""
