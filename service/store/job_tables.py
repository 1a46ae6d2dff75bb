"""Which tables hold work that takes longer than a request? Jobs, what happened to them, their files, and workers.

Payloads, results and progress are kept as plain JSON text, which keeps their keys in order and their numbers as they
were.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
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
    text,
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
    Column("lease_digest", LargeBinary),
    Column("lease_key", String, nullable=False, server_default=text("''")),
    Column("outcome_digest", LargeBinary),
    Column("file_bytes", BigInteger, nullable=False, server_default="0"),
    Column("progress_bytes", BigInteger, nullable=False, server_default="0"),
    Index("ix_jobs_kind_created_at", "kind", "created_at"),
    Index("ix_jobs_lease_key", "lease_key", "file_bytes"),
    Index(
        "ix_jobs_queue",
        *("status", "owner", "kind", "requires", "available_at", "priority", "created_at", "id"),
    ),
)
"""Every job. Of its last claim: the digest of the lease, the key that claimed it (empty without keys) and the digest of
the outcome, once there is one. Attempts only ever count up, those given back are counted beside. What it requires is
canonical JSON text, so that equal demands are equal texts."""

JOB_TURNS = Table(
    "job_turns",
    METADATA,
    Column("owner", String, primary_key=True),
    Column("served", BigInteger, nullable=False, index=True),
)
"""When each owner was served last, as a number that counts claims: jobs go round the owners."""

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
    Column("key", String, nullable=False, server_default=text("''")),
    Column("name", String),
    Column("owner", String),
    Index("ix_workers_key", "key", "last_seen_at"),
)
"""Workers that asked for jobs, each under the key that it asked with (empty without keys). The id of one with a key is
a digest of key and name, so that two keys may use the same name; without a key it is the name. One with an owner
takes that owner's jobs alone."""
