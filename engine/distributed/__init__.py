"""One graph solved by many workers of a Dask scheduler, each with a GPU or some processors."""
