"""Questions of checks, by the id of their estimate, so that a job's comment leads to its numbers."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "checked_questions",
        sa.Column("estimate_id", sa.String, primary_key=True),
        sa.Column("question", sa.JSON, nullable=False),
        sa.Column("formulas", sa.String, nullable=False),
        sa.Column("catalogue", sa.String, nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("ix_checked_questions_asked_at", "checked_questions", ["asked_at"])


def downgrade() -> None:
    op.drop_table("checked_questions")
