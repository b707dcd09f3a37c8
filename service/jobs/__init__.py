"""Jobs and their files, from the request to the result and its removal."""
