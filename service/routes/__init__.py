"""The routes of the API, by subject; they only translate between HTTP and the other modules."""
