"""The interface of the API: schemas, errors, and the OpenAPI document."""
