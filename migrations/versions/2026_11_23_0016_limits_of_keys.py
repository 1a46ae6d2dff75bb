"""A key may have limits of its own; whoever holds keys in memory sees by a count that they were changed."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

COLUMNS = ("requests_per_minute", "request_burst")


def upgrade() -> None:
    for name in COLUMNS:
        op.add_column("api_keys", sa.Column(name, sa.Integer))
    op.add_column("api_keys", sa.Column("limit_changes", sa.Integer, nullable=False, server_default="0"))


def downgrade() -> None:
    for name in (*COLUMNS, "limit_changes"):
        op.drop_column("api_keys", name)
