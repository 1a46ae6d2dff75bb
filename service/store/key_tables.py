"""Which table holds who may ask? Keys, of whose secrets nothing but a digest is kept."""

from sqlalchemy import Column, DateTime, LargeBinary, String, Table

from service.store.tables import JSON_VALUE, METADATA

API_KEYS = Table(
    "api_keys",
    METADATA,
    Column("id", String, primary_key=True),
    Column("digest", LargeBinary, nullable=False),
    Column("name", String, nullable=False),
    Column("owner", String, nullable=False),
    Column("scopes", JSON_VALUE, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("expires_at", DateTime(timezone=True)),
    Column("revoked_at", DateTime(timezone=True)),
    Column("last_used_at", DateTime(timezone=True)),
)
"""Every key that was ever made; a revoked one stays, so that the last one to go does not open the service."""
