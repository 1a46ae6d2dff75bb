"""Which table holds what was answered to requests that may be sent twice?"""

from sqlalchemy import JSON, Column, DateTime, Integer, LargeBinary, String, Table

from service.store.tables import METADATA

REMEMBERED_ANSWERS = Table(
    "remembered_answers",
    METADATA,
    Column("caller", String, primary_key=True),
    Column("operation", String, primary_key=True),
    Column("key", String, primary_key=True),
    Column("request_digest", String, nullable=False),
    Column("status", Integer, nullable=False),
    Column("headers", JSON, nullable=False),
    Column("content", LargeBinary, nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False, index=True),
)
"""Answers to requests that bore an Idempotency-Key, by who sent them to which operation; gone after a day."""
