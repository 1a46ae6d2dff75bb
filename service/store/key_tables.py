"""Which tables hold who may ask? Keys, of whose secrets only a digest is kept, and what links are signed with."""

from sqlalchemy import Column, DateTime, Integer, LargeBinary, String, Table

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
    Column("requests_per_minute", Integer),
    Column("request_burst", Integer),
    Column("limit_changes", Integer, nullable=False, server_default="0"),
)
"""Every key that was ever made; a revoked one stays, so that the last one to go does not open the service."""

SERVER_SECRETS = Table(
    "server_secrets",
    METADATA,
    Column("name", String, primary_key=True),
    Column("secret", LargeBinary, nullable=False),
    Column("made_at", DateTime(timezone=True), nullable=False),
)
"""What the service signs with, made when it is first needed and shared by all of its processes."""
