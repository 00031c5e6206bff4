"""Sinks that hand a run's numbers to trackers, each behind a bounded queue and a thread of its own."""
