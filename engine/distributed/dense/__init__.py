"""One matrix in rounds over many workers: the driver assigns stripes, panels and commits; workers compute them."""
