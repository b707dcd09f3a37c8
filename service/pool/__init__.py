"""Helper processes of the API, which read uploads, plan jobs, check long bodies and answer from prepared graphs."""
