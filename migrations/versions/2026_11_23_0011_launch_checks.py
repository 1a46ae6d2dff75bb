"""Launch checks, and answers to requests that may be sent twice.

Revision ID: 0011
Revises: 0010
"""

from alembic import op
from sqlalchemy import JSON, Boolean, Column, DateTime, Double, ForeignKey, Integer, LargeBinary, String

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "launch_checks",
        Column("id", String, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
        Column("question", JSON, nullable=False),
        Column("estimate_id", String, ForeignKey("estimates.id"), nullable=False),
        Column("gpu", String, nullable=False),
        Column("gpus", Integer, nullable=False),
        Column("probes", JSON, nullable=False),
        Column("time_budget_seconds", Double, nullable=False),
        Column("on_workers", String, nullable=False),
        Column("plan", JSON, nullable=False),
        Column("found", JSON),
        Column("verdict", String),
        Column("comparable", Boolean),
        Column("device", String),
    )
    op.create_table(
        "remembered_answers",
        Column("caller", String, primary_key=True),
        Column("operation", String, primary_key=True),
        Column("key", String, primary_key=True),
        Column("request_digest", String, nullable=False),
        Column("status", Integer, nullable=False),
        Column("headers", JSON, nullable=False),
        Column("content", LargeBinary, nullable=False),
        Column("expires_at", DateTime(timezone=True), nullable=False, index=True),
    )


def downgrade() -> None:
    op.drop_table("remembered_answers")
    op.drop_table("launch_checks")
