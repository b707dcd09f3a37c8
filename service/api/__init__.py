"""What goes over the wire: schemas, errors, and the OpenAPI document."""
