"""Distance matrices as Zarr stores: writes, seals and reads them."""
