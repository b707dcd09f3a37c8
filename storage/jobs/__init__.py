"""The job database: graphs, jobs, runners, keys and sessions of the service."""
