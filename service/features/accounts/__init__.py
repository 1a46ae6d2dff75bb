"""API keys and the audit log."""
