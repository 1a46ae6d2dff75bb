"""Energy and failures: places with their electricity, what clusters draw and how they fail, what GPUs cost to buy."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

JSON_VALUE = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")

OF_CLUSTERS = {
    "failures_per_gpu_hour": sa.Double,
    "restart_seconds": sa.Double,
    "spare_fraction": sa.Double,
    "grid_region": sa.String,
    "grid_kg_co2e_per_kwh": sa.Double,
    "pue": sa.Double,
    "busy_power_fraction": sa.Double,
    "idle_power_fraction": sa.Double,
    "host_power_fraction": sa.Double,
}
"""New columns of clusters; none is known of the clusters that there are."""


def upgrade() -> None:
    with op.batch_alter_table("clusters") as batch:
        for name, kind in OF_CLUSTERS.items():
            batch.add_column(sa.Column(name, kind))
    with op.batch_alter_table("gpus") as batch:
        batch.add_column(sa.Column("purchase", JSON_VALUE))
    op.create_table(
        "regions",
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("revision", sa.Integer, autoincrement=False, nullable=False, server_default="1"),
        sa.Column("since_change", sa.Integer, nullable=False),
        sa.Column("until_change", sa.Integer),
        sa.Column("slug", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("country", sa.String),
        sa.Column("aliases", JSON_VALUE, nullable=False),
        sa.Column("grid_kg_co2e_per_kwh", sa.Double, nullable=False),
        sa.Column("carbon_free_fraction", sa.Double),
        sa.Column("pue", sa.Double),
        sa.Column("pue_source", sa.String),
        *(sa.Column(name, sa.String, nullable=False) for name in ("source", "as_of", "verified", "note")),
        sa.PrimaryKeyConstraint("owner", "slug", "revision", name="pk_regions"),
    )
    holds = sa.text("until_change IS NULL")
    op.create_index(
        "uq_regions_holding", "regions", ["owner", "slug"], unique=True, sqlite_where=holds, postgresql_where=holds
    )


def downgrade() -> None:
    op.drop_index("uq_regions_holding", "regions")
    op.drop_table("regions")
    with op.batch_alter_table("gpus") as batch:
        batch.drop_column("purchase")
    with op.batch_alter_table("clusters") as batch:
        for name in OF_CLUSTERS:
            batch.drop_column(name)
