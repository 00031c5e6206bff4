"""The format of a training run's log: training and vitals write it, attribution and reports read it."""
