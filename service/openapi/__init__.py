"""The OpenAPI document: schemas that the framework cannot derive from routes."""
