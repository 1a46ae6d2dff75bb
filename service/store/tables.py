"""What does the database hold? Every version of every row of the catalogue, the shipped ones and a team's own.

A column bears the name of its field, so a name is the same in Python, SQL, JSON and CSV. GPUs and clusters are spread
over columns; a model's architecture, which grows with every layer kind, is one JSON value. A version is never written
over: a change closes it and adds the next one, so the catalogue of any earlier change can be read again. The revision
stands last in every key, so that the versions of one row are found without reading those of others.
"""

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    DateTime,
    Double,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.schema import SchemaItem

METADATA = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    }
)

JSON_VALUE = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def _held_by() -> list[SchemaItem]:
    """Whose row it is, which version of it, and between which changes of the catalogue the version holds."""
    return [
        Column("owner", String, nullable=False),
        Column("revision", Integer, nullable=False, autoincrement=False, server_default="1"),
        Column("since_change", Integer, nullable=False),
        Column("until_change", Integer),
        Column("scope", String, nullable=False, server_default="owner"),
    ]


def _versions_of(table: str, *key: str) -> list[SchemaItem]:
    """What tells versions apart, and that at most one of them holds; these two also find a row without a scan."""
    holds = text("until_change IS NULL")
    names = ("owner", *key)
    return [
        PrimaryKeyConstraint(*names, "revision"),
        Index(f"uq_{table}_holding", *names, unique=True, sqlite_where=holds, postgresql_where=holds),
    ]


def _provenance() -> list[Column[str]]:
    """Where the numbers were read, when, and how well that was checked."""
    return [Column(name, String, nullable=False) for name in ("source", "as_of", "verified", "note")]


MODELS = Table(
    "models",
    METADATA,
    *_held_by(),
    Column("slug", String, nullable=False),
    Column("name", String, nullable=False),
    Column("family", String, nullable=False),
    Column("aliases", JSON_VALUE, nullable=False),
    Column("hugging_face_id", String),
    Column("release", String),
    Column("model", JSON_VALUE),
    Column("not_estimated", String),
    Column("published", JSON_VALUE),
    Column("exact", JSON_VALUE),
    *_provenance(),
    *_versions_of("models", "slug"),
)

GPUS = Table(
    "gpus",
    METADATA,
    *_held_by(),
    Column("slug", String, nullable=False),
    Column("name", String, nullable=False),
    Column("vendor", String, nullable=False),
    Column("architecture", String, nullable=False),
    Column("release_year", Integer, nullable=False),
    Column("aliases", JSON_VALUE, nullable=False),
    Column("default_for", JSON_VALUE, nullable=False),
    Column("memory_bytes", Double, nullable=False),
    Column("usable_bytes", Double, nullable=False),
    Column("usable_basis", String, nullable=False),
    Column("memory_bytes_per_s", Double, nullable=False),
    Column("fp32_flop_per_s", Double),
    Column("bf16_flop_per_s", Double),
    Column("fp16_flop_per_s", Double),
    Column("fp8_flop_per_s", Double),
    Column("fp4_flop_per_s", Double),
    Column("int8_flop_per_s", Double),
    Column("link_name", String, nullable=False),
    Column("link_bytes_per_s", Double, nullable=False),
    Column("scale_up_gpus", Integer, nullable=False),
    Column("inter_node_bytes_per_s", Double, nullable=False),
    Column("host_bytes_per_s", Double, nullable=False),
    Column("board_watts", Double, nullable=False),
    Column("purchase", JSON_VALUE),
    *_provenance(),
    *_versions_of("gpus", "slug"),
)

CLUSTERS = Table(
    "clusters",
    METADATA,
    *_held_by(),
    Column("slug", String, nullable=False),
    Column("name", String, nullable=False),
    Column("aliases", JSON_VALUE, nullable=False),
    Column("gpu", String, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("gpus_per_node", Integer, nullable=False),
    Column("scale_up_gpus", Integer),
    Column("inter_node_bytes_per_s", Double),
    Column("measured_steps", JSON_VALUE, nullable=False),
    Column("power_limit_watts", Double),
    Column("network_oversubscription", Double, nullable=False),
    Column("network_reduction", Boolean, nullable=False),
    Column("failures_per_gpu_hour", Double),
    Column("restart_seconds", Double),
    Column("spare_fraction", Double),
    Column("grid_region", String),
    Column("grid_kg_co2e_per_kwh", Double),
    Column("pue", Double),
    Column("busy_power_fraction", Double),
    Column("idle_power_fraction", Double),
    Column("host_power_fraction", Double),
    *_provenance(),
    *_versions_of("clusters", "slug"),
)

PRICES = Table(
    "prices",
    METADATA,
    *_held_by(),
    Column("provider", String, nullable=False),
    Column("instance_type", String, nullable=False),
    Column("gpu", String, nullable=False),
    Column("gpu_count", Integer, nullable=False),
    Column("region", String, nullable=False),
    Column("price_model", String, nullable=False),
    Column("stat", String, nullable=False),
    Column("usd_per_gpu_hour", Double, nullable=False),
    Column("usd_per_instance_hour", Double, nullable=False),
    *_provenance(),
    *_versions_of("prices", "provider", "instance_type", "gpu", "region", "price_model", "stat", "as_of"),
)

RATE_CARDS = Table(
    "rate_cards",
    METADATA,
    *_held_by(),
    Column("slug", String, nullable=False),
    Column("name", String, nullable=False),
    Column("rates", JSON_VALUE, nullable=False),
    *_provenance(),
    *_versions_of("rate_cards", "slug"),
)

REGIONS = Table(
    "regions",
    METADATA,
    *_held_by(),
    Column("slug", String, nullable=False),
    Column("name", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("country", String),
    Column("aliases", JSON_VALUE, nullable=False),
    Column("grid_kg_co2e_per_kwh", Double, nullable=False),
    Column("carbon_free_fraction", Double),
    Column("pue", Double),
    Column("pue_source", String),
    *_provenance(),
    *_versions_of("regions", "slug"),
)

PROMOTED_CALIBRATIONS = Table(
    "promoted_calibrations",
    METADATA,
    *_held_by(),
    Column("gpu", String, nullable=False),
    Column("calibration", JSON_VALUE, nullable=False),
    *_provenance(),
    *_versions_of("promoted_calibrations", "scope", "gpu"),
)
"""Which calibration holds for which GPU, and between which changes of the catalogue it did."""

CHANGES = Table(
    "changes",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("made_at", DateTime(timezone=True), nullable=False),
    Column("catalogue_revision", String, nullable=False, index=True),
    Column("owner", String, nullable=False),
    Column("summary", String, nullable=False),
)
"""Every change of the catalogue, numbered without a gap, with the digest of the catalogue after it."""

CHANGED_PARTS = Table(
    "changed_parts",
    METADATA,
    Column("part", String, nullable=False),
    Column("number", Integer, nullable=False, autoincrement=False),
    Column("digest", String, nullable=False),
    PrimaryKeyConstraint("part", "number"),
    Index("ix_changed_parts_number", "number"),
)
"""Which parts of all rows a change touched, with their digests after it: `catalogue` for the rows that everyone sees,
an owner for its private ones. Changes without any were made when everyone saw all rows."""

SEEDINGS = Table(
    "seedings",
    METADATA,
    Column("catalogue_revision", String, primary_key=True),
    Column("seeded_at", DateTime(timezone=True), nullable=False),
)
"""Which shipped catalogue the rows of `SHIPPED` are: one row."""
