"""Distance matrices as Zarr stores: in the making, sealed, and read."""
