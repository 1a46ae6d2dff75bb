"""Custom rows and calibrations hold for their owner alone; which part of all rows a change touched is on record.

Every custom row stays with its owner. The next start notes the parts that there are; changes before that stay as they
were made, when everyone saw all rows.
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

TABLES = ("models", "gpus", "clusters", "prices", "rate_cards", "regions", "promoted_calibrations")
HOLDS = sa.text("until_change IS NULL")


def upgrade() -> None:
    for table in TABLES:
        op.add_column(table, sa.Column("scope", sa.String, nullable=False, server_default="owner"))
    _key_calibrations("owner", "scope", "gpu")
    op.add_column("calibrations", sa.Column("scope", sa.String, nullable=False, server_default="owner"))
    op.create_table(
        "changed_parts",
        sa.Column("part", sa.String, nullable=False),
        sa.Column("number", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("digest", sa.String, nullable=False),
        sa.PrimaryKeyConstraint("part", "number", name="pk_changed_parts"),
    )
    op.create_index("ix_changed_parts_number", "changed_parts", ["number"])


def downgrade() -> None:
    op.drop_index("ix_changed_parts_number", "changed_parts")
    op.drop_table("changed_parts")
    op.drop_column("calibrations", "scope")
    op.execute("DELETE FROM promoted_calibrations WHERE scope = 'everyone'")
    _key_calibrations("owner", "gpu")
    for table in TABLES:
        op.drop_column(table, "scope")


def _key_calibrations(*key: str) -> None:
    op.drop_index("uq_promoted_calibrations_holding", "promoted_calibrations")
    with op.batch_alter_table("promoted_calibrations") as batch:
        batch.drop_constraint("pk_promoted_calibrations", type_="primary")
        batch.create_primary_key("pk_promoted_calibrations", [*key, "revision"])
    op.create_index(
        "uq_promoted_calibrations_holding",
        "promoted_calibrations",
        list(key),
        unique=True,
        sqlite_where=HOLDS,
        postgresql_where=HOLDS,
    )
