"""Jobs: work for workers, what happened to it, the files it left, and the workers."""

from datetime import datetime

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _jobs()
    op.create_table(
        "job_events",
        _job_id("job_events"),
        sa.Column("number", sa.Integer, nullable=False, autoincrement=False),
        _moment("at", nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("data", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "number", name="pk_job_events"),
    )
    op.create_table(
        "job_files",
        _job_id("job_files"),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("media_type", sa.String, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "name", name="pk_job_files"),
    )
    op.create_table(
        "workers",
        sa.Column("id", sa.String, nullable=False),
        sa.Column("capabilities", sa.JSON, nullable=False),
        _moment("first_seen_at", nullable=False),
        _moment("last_seen_at", nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_workers"),
    )
    op.create_index("ix_workers_last_seen_at", "workers", ["last_seen_at"])


def _jobs() -> None:
    op.create_table(
        "jobs",
        *(sa.Column(name, sa.String, nullable=False) for name in ("id", "kind", "owner")),
        sa.Column("parent", sa.String),
        sa.Column("requires", sa.String, nullable=False),
        sa.Column("payload", sa.JSON, nullable=False),
        sa.Column("status", sa.String, nullable=False),
        *(sa.Column(name, sa.Integer, nullable=False) for name in _COUNTS),
        sa.Column("timeout_seconds", sa.Double, nullable=False),
        _moment("available_at", nullable=False),
        sa.Column("worker", sa.String),
        _moment("lease_until"),
        _moment("created_at", nullable=False),
        _moment("started_at"),
        _moment("finished_at"),
        sa.Column("cancel_requested", sa.Boolean, nullable=False),
        *(sa.Column(name, sa.JSON) for name in ("progress", "result", "error")),
        sa.Column("events", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
    )
    op.create_index("ix_jobs_parent", "jobs", ["parent"])
    op.create_index("ix_jobs_status_kind", "jobs", ["status", "kind"])
    op.create_index("ix_jobs_kind_created_at", "jobs", ["kind", "created_at"])


_COUNTS = ("priority", "attempt", "given_back", "max_attempts")


def _moment(name: str, *, nullable: bool = True) -> sa.Column[datetime]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


def _job_id(table: str) -> sa.Column[str]:
    key = sa.ForeignKey("jobs.id", name=f"fk_{table}_job_id_jobs", ondelete="CASCADE")
    return sa.Column("job_id", sa.String, key, nullable=False)


def downgrade() -> None:
    for table in ("workers", "job_files", "job_events", "jobs"):
        op.drop_table(table)
