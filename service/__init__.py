"""The REST service and the command line: knows HTTP, jobs and processes."""
