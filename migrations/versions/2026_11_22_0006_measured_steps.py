"""Measured steps of clusters: what an owner's own runs took, beside what was predicted of them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

JSON_VALUE = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    with op.batch_alter_table("clusters") as batch:
        batch.add_column(sa.Column("measured_steps", JSON_VALUE, nullable=False, server_default="[]"))
    with op.batch_alter_table("clusters") as batch:
        batch.alter_column("measured_steps", server_default=None)


def downgrade() -> None:
    with op.batch_alter_table("clusters") as batch:
        batch.drop_column("measured_steps")
