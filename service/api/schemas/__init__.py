"""Schemas of requests and answers, with examples; the OpenAPI document is made from these classes."""
