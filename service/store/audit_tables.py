"""Which table holds who changed what? Rows are added, and go when they are old; none is ever changed."""

from sqlalchemy import Column, DateTime, Integer, String, Table

from service.store.tables import METADATA

AUDIT_LOG = Table(
    "audit_log",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("at", DateTime(timezone=True), nullable=False, index=True),
    Column("caller", String),
    Column("owner", String, nullable=False),
    Column("operation", String, nullable=False),
    Column("object", String),
    Column("outcome", String, nullable=False),
    Column("request_id", String),
)
"""Every change that somebody made, in the transaction that made it, and what was refused."""
