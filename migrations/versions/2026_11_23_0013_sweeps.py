"""Sweeps: what their rows are made of; their pieces are jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sweeps",
        sa.Column("id", sa.String, nullable=False),
        sa.Column("name", sa.String),
        *(sa.Column(name, sa.String, nullable=False) for name in ("kind", "owner")),
        sa.Column("rows", sa.Integer, nullable=False),
        sa.Column("columns", sa.JSON, nullable=False),
        *(sa.Column(name, sa.String, nullable=False) for name in ("formulas", "catalogue")),
        sa.Column("calibration", sa.String),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_sweeps"),
    )
    op.create_index("ix_sweeps_created_at", "sweeps", ["created_at"])


def downgrade() -> None:
    op.drop_table("sweeps")
