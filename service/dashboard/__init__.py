"""The dashboard: pages rendered on the server, with little script, on the same service as the API."""
