"""What goes over the wire, with examples: the OpenAPI document is made from these classes."""
