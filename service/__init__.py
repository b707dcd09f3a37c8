"""The REST service and the command line: HTTP, jobs and processes."""
