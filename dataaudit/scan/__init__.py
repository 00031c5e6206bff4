"""What reads a corpus: readers, detectors, kernels, stages, joins over shards. It knows neither Dask nor policies."""
