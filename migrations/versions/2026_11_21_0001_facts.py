"""Facts: models, GPUs, clusters and prices, each with its owner, its source and its date."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

JSON_VALUE = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def _held_by() -> list[sa.Column[Any]]:
    return [
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False, server_default="1"),
    ]


def _provenance() -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.String, nullable=False) for name in ("source", "as_of", "verified", "note")]


def upgrade() -> None:
    _make_models()
    _make_gpus()
    _make_clusters()
    _make_prices()
    op.create_table(
        "seedings",
        sa.Column("catalogue_revision", sa.String, nullable=False),
        sa.Column("seeded_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("catalogue_revision", name="pk_seedings"),
    )


def downgrade() -> None:
    for table in ("seedings", "prices", "clusters", "gpus", "models"):
        op.drop_table(table)


def _make_models() -> None:
    op.create_table(
        "models",
        *_held_by(),
        sa.Column("slug", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("family", sa.String, nullable=False),
        sa.Column("aliases", JSON_VALUE, nullable=False),
        sa.Column("hugging_face_id", sa.String),
        sa.Column("release", sa.String),
        sa.Column("model", JSON_VALUE),
        sa.Column("not_estimated", sa.String),
        sa.Column("published", JSON_VALUE),
        sa.Column("exact", JSON_VALUE),
        *_provenance(),
        sa.PrimaryKeyConstraint("owner", "slug", name="pk_models"),
    )


def _make_gpus() -> None:
    op.create_table(
        "gpus",
        *_held_by(),
        sa.Column("slug", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("vendor", sa.String, nullable=False),
        sa.Column("architecture", sa.String, nullable=False),
        sa.Column("release_year", sa.Integer, nullable=False),
        sa.Column("aliases", JSON_VALUE, nullable=False),
        sa.Column("default_for", JSON_VALUE, nullable=False),
        sa.Column("memory_bytes", sa.Double, nullable=False),
        sa.Column("usable_bytes", sa.Double, nullable=False),
        sa.Column("usable_basis", sa.String, nullable=False),
        sa.Column("memory_bytes_per_s", sa.Double, nullable=False),
        sa.Column("fp32_flop_per_s", sa.Double),
        sa.Column("bf16_flop_per_s", sa.Double),
        sa.Column("fp16_flop_per_s", sa.Double),
        sa.Column("fp8_flop_per_s", sa.Double),
        sa.Column("fp4_flop_per_s", sa.Double),
        sa.Column("int8_flop_per_s", sa.Double),
        sa.Column("link_name", sa.String, nullable=False),
        sa.Column("link_bytes_per_s", sa.Double, nullable=False),
        sa.Column("scale_up_gpus", sa.Integer, nullable=False),
        sa.Column("inter_node_bytes_per_s", sa.Double, nullable=False),
        sa.Column("host_bytes_per_s", sa.Double, nullable=False),
        sa.Column("board_watts", sa.Double, nullable=False),
        *_provenance(),
        sa.PrimaryKeyConstraint("owner", "slug", name="pk_gpus"),
    )


def _make_clusters() -> None:
    op.create_table(
        "clusters",
        *_held_by(),
        sa.Column("slug", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("aliases", JSON_VALUE, nullable=False),
        sa.Column("gpu", sa.String, nullable=False),
        sa.Column("gpus", sa.Integer, nullable=False),
        sa.Column("gpus_per_node", sa.Integer, nullable=False),
        sa.Column("scale_up_gpus", sa.Integer),
        sa.Column("inter_node_bytes_per_s", sa.Double),
        *_provenance(),
        sa.PrimaryKeyConstraint("owner", "slug", name="pk_clusters"),
    )


def _make_prices() -> None:
    key = ("owner", "provider", "instance_type", "gpu", "region", "price_model", "stat", "as_of")
    op.create_table(
        "prices",
        *_held_by(),
        sa.Column("provider", sa.String, nullable=False),
        sa.Column("instance_type", sa.String, nullable=False),
        sa.Column("gpu", sa.String, nullable=False),
        sa.Column("gpu_count", sa.Integer, nullable=False),
        sa.Column("region", sa.String, nullable=False),
        sa.Column("price_model", sa.String, nullable=False),
        sa.Column("stat", sa.String, nullable=False),
        sa.Column("usd_per_gpu_hour", sa.Double, nullable=False),
        sa.Column("usd_per_instance_hour", sa.Double, nullable=False),
        *_provenance(),
        sa.PrimaryKeyConstraint(*key, name="pk_prices"),
    )
