"""Own rows: every version of a row is kept, each change of the catalogue is numbered, and there are rate cards."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

JSON_VALUE = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")

KEYS = {
    "models": ("slug",),
    "gpus": ("slug",),
    "clusters": ("slug",),
    "prices": ("provider", "instance_type", "gpu", "region", "price_model", "stat", "as_of"),
}
"""What tells the rows of one owner apart."""

FIRST = 1
"""Number of the change since which the rows of the revision before hold."""

FIRST_CHANGE = """
INSERT INTO changes (number, made_at, catalogue_revision, owner, summary)
SELECT 1, seeded_at, catalogue_revision, 'catalogue', 'what was shipped before versions were kept' FROM seedings
"""


def upgrade() -> None:
    for table, key in KEYS.items():
        _add_versions(table, key)
        _let_one_hold(table, key)
    op.create_table("rate_cards", *_rate_card_columns())
    _let_one_hold("rate_cards", ("slug",))
    op.create_table(
        "changes",
        sa.Column("number", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("catalogue_revision", sa.String, nullable=False),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("summary", sa.String, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_changes"),
    )
    op.create_index("ix_changes_catalogue_revision", "changes", ["catalogue_revision"])
    op.execute(FIRST_CHANGE)


def downgrade() -> None:
    op.drop_index("ix_changes_catalogue_revision", "changes")
    op.drop_table("changes")
    op.drop_index("uq_rate_cards_holding", "rate_cards")
    op.drop_table("rate_cards")
    for table, key in KEYS.items():
        op.drop_index(f"uq_{table}_holding", table)
        op.execute(sa.delete(sa.table(table, sa.column("until_change"))).where(sa.column("until_change").is_not(None)))
        with op.batch_alter_table(table) as batch:
            batch.drop_constraint(f"pk_{table}", type_="primary")
            batch.create_primary_key(f"pk_{table}", ["owner", *key])
            batch.drop_column("until_change")
            batch.drop_column("since_change")


def _add_versions(table: str, key: tuple[str, ...]) -> None:
    with op.batch_alter_table(table) as batch:
        batch.add_column(sa.Column("since_change", sa.Integer, nullable=False, server_default=str(FIRST)))
        batch.add_column(sa.Column("until_change", sa.Integer))
        batch.drop_constraint(f"pk_{table}", type_="primary")
        batch.create_primary_key(f"pk_{table}", ["owner", *key, "revision"])
    with op.batch_alter_table(table) as batch:
        batch.alter_column("since_change", server_default=None)


def _let_one_hold(table: str, key: tuple[str, ...]) -> None:
    """Of all versions of a row at most one holds; this also finds it without reading the others."""
    holds = sa.text("until_change IS NULL")
    op.create_index(
        f"uq_{table}_holding",
        table,
        ["owner", *key],
        unique=True,
        sqlite_where=holds,
        postgresql_where=holds,
    )


def _rate_card_columns() -> list[Any]:
    return [
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("revision", sa.Integer, autoincrement=False, nullable=False, server_default="1"),
        sa.Column("since_change", sa.Integer, nullable=False),
        sa.Column("until_change", sa.Integer),
        sa.Column("slug", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("rates", JSON_VALUE, nullable=False),
        *(sa.Column(name, sa.String, nullable=False) for name in ("source", "as_of", "verified", "note")),
        sa.PrimaryKeyConstraint("owner", "slug", "revision", name="pk_rate_cards"),
    ]
