"""The page for people: rendered here, with a little script, over the same service as the API."""
