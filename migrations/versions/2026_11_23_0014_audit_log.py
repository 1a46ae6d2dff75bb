"""Who changed what; launch checks and what they measured belong to the owner of the key that asked for them."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audit_log",
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("caller", sa.String),
        *(sa.Column(name, sa.String, nullable=False) for name in ("owner", "operation")),
        sa.Column("object", sa.String),
        sa.Column("outcome", sa.String, nullable=False),
        sa.Column("request_id", sa.String),
        sa.PrimaryKeyConstraint("number", name="pk_audit_log"),
    )
    op.execute(
        "UPDATE jobs SET owner = COALESCE((SELECT owner FROM api_keys WHERE api_keys.id = jobs.owner), 'team') "
        "WHERE kind = 'launch-check'"
    )
    op.execute(
        "UPDATE measurements SET owner = (SELECT owner FROM jobs WHERE jobs.id = measurements.launch_check_id) "
        "WHERE launch_check_id IN (SELECT id FROM jobs)"
    )


def downgrade() -> None:
    op.drop_table("audit_log")
