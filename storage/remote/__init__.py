"""Matrix stores and other objects in S3-compatible object storage."""
