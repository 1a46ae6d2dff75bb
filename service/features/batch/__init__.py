"""Up to a thousand questions in one request."""
