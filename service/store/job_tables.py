"""Which tables hold work that takes longer than a request? Jobs, what happened to them, their files, and workers.

Payloads, results and progress are kept as plain JSON text, which keeps their keys in order and their numbers as they
were.
"""

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
)

from service.store.tables import METADATA

JOBS = Table(
    "jobs",
    METADATA,
    Column("id", String, primary_key=True),
    Column("kind", String, nullable=False),
    Column("owner", String, nullable=False),
    Column("parent", String, index=True),
    Column("requires", String, nullable=False),
    Column("payload", JSON, nullable=False),
    Column("status", String, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("given_back", Integer, nullable=False),
    Column("max_attempts", Integer, nullable=False),
    Column("timeout_seconds", Double, nullable=False),
    Column("available_at", DateTime(timezone=True), nullable=False),
    Column("worker", String),
    Column("lease_until", DateTime(timezone=True)),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("started_at", DateTime(timezone=True)),
    Column("finished_at", DateTime(timezone=True)),
    Column("cancel_requested", Boolean, nullable=False),
    Column("progress", JSON(none_as_null=True)),
    Column("result", JSON(none_as_null=True)),
    Column("error", JSON(none_as_null=True)),
    Column("events", Integer, nullable=False),
    Index("ix_jobs_status_kind", "status", "kind"),
    Index("ix_jobs_kind_created_at", "kind", "created_at"),
)
"""Every job. (worker, attempt) tells who may speak of it; attempts only ever count up, those given back are counted
beside. What it requires is canonical JSON text, so that equal demands are equal texts."""

JOB_EVENTS = Table(
    "job_events",
    METADATA,
    Column("job_id", String, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("name", String, nullable=False),
    Column("data", JSON, nullable=False),
)
"""What happened to each job, numbered from 1 without gaps; of a job that ended long ago, its end alone is kept."""

JOB_FILES = Table(
    "job_files",
    METADATA,
    Column("job_id", String, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("name", String, primary_key=True),
    Column("media_type", String, nullable=False),
    Column("content", LargeBinary, nullable=False),
)
"""What a job's last attempt left beside its result: traces, tables."""

WORKERS = Table(
    "workers",
    METADATA,
    Column("id", String, primary_key=True),
    Column("capabilities", JSON, nullable=False),
    Column("first_seen_at", DateTime(timezone=True), nullable=False),
    Column("last_seen_at", DateTime(timezone=True), nullable=False, index=True),
)
"""Workers that asked for jobs."""
