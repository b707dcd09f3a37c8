"""The routes, by what they are about: thin, the work is elsewhere."""
