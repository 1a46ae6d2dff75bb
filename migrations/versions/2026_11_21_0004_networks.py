"""Networks and power of clusters: oversubscription, switches that add, a limit on the power of a GPU."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

ADDED = ("network_oversubscription", "network_reduction")


def upgrade() -> None:
    with op.batch_alter_table("clusters") as batch:
        batch.add_column(sa.Column("network_oversubscription", sa.Double, nullable=False, server_default="1.0"))
        batch.add_column(sa.Column("power_limit_watts", sa.Double))
        batch.add_column(sa.Column("network_reduction", sa.Boolean, nullable=False, server_default=sa.false()))
    with op.batch_alter_table("clusters") as batch:
        for name in ADDED:
            batch.alter_column(name, server_default=None)


def downgrade() -> None:
    with op.batch_alter_table("clusters") as batch:
        for name in ("power_limit_watts", *reversed(ADDED)):
            batch.drop_column(name)
