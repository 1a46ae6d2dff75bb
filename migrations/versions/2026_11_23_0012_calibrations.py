"""Measurements, calibrations fitted on them, and which of those holds for which GPU."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

JSON_VALUE = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
HOLDS = sa.text("until_change IS NULL")


def upgrade() -> None:
    op.create_table(
        "promoted_calibrations",
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("revision", sa.Integer, autoincrement=False, nullable=False, server_default="1"),
        sa.Column("since_change", sa.Integer, nullable=False),
        sa.Column("until_change", sa.Integer),
        sa.Column("gpu", sa.String, nullable=False),
        sa.Column("calibration", JSON_VALUE, nullable=False),
        *(sa.Column(name, sa.String, nullable=False) for name in ("source", "as_of", "verified", "note")),
        sa.PrimaryKeyConstraint("owner", "gpu", "revision", name="pk_promoted_calibrations"),
    )
    op.create_index(
        "uq_promoted_calibrations_holding",
        "promoted_calibrations",
        ["owner", "gpu"],
        unique=True,
        sqlite_where=HOLDS,
        postgresql_where=HOLDS,
    )
    _create_measurements()
    _create_calibrations()


def _create_measurements() -> None:
    op.create_table(
        "measurements",
        sa.Column("id", sa.String, nullable=False),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("launch_check_id", sa.String),
        sa.Column("run", sa.String, nullable=False),
        sa.Column("source", sa.String, nullable=False),
        sa.Column("probe", sa.String, nullable=False),
        sa.Column("operation", sa.String, nullable=False),
        sa.Column("shape", sa.JSON, nullable=False),
        sa.Column("quantity", sa.String, nullable=False),
        sa.Column("value", sa.Double, nullable=False),
        sa.Column("low", sa.Double, nullable=False),
        sa.Column("high", sa.Double, nullable=False),
        sa.Column("repeats", sa.Integer, nullable=False),
        sa.Column("relative_error_fraction", sa.Double),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("device", sa.String, nullable=False),
        sa.Column("gpu", sa.String),
        sa.Column("environment", sa.JSON, nullable=False),
        sa.Column("fingerprint", sa.String, nullable=False),
        sa.Column("predicted_value", sa.Double),
        sa.Column("formulas", sa.String, nullable=False),
        sa.Column("calibration", sa.String),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("quarantined_at", sa.DateTime(timezone=True)),
        sa.Column("reason", sa.String),
        sa.PrimaryKeyConstraint("id", name="pk_measurements"),
    )
    op.create_index("ix_measurements_device_probe", "measurements", ["device", "probe"])
    op.create_index("ix_measurements_launch_check_id", "measurements", ["launch_check_id"])


def _create_calibrations() -> None:
    op.create_table(
        "calibrations",
        sa.Column("id", sa.String, nullable=False),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("gpu", sa.String),
        sa.Column("device", sa.String, nullable=False),
        sa.Column("note", sa.String, nullable=False),
        sa.Column("constants", sa.JSON, nullable=False),
        sa.Column("fitted_on", sa.JSON, nullable=False),
        sa.Column("parts", sa.JSON, nullable=False),
        sa.Column("held_out_fraction", sa.Double),
        sa.Column("in_sample_fraction", sa.Double),
        sa.Column("before_fraction", sa.Double),
        sa.Column("formulas", sa.String, nullable=False),
        sa.Column("replaces", sa.String),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("promoted_at", sa.DateTime(timezone=True)),
        sa.Column("retired_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name="pk_calibrations"),
    )
    op.create_index("ix_calibrations_device", "calibrations", ["device"])


def downgrade() -> None:
    op.drop_index("ix_calibrations_device", "calibrations")
    op.drop_table("calibrations")
    op.drop_index("ix_measurements_launch_check_id", "measurements")
    op.drop_index("ix_measurements_device_probe", "measurements")
    op.drop_table("measurements")
    op.drop_index("uq_promoted_calibrations_holding", "promoted_calibrations")
    op.drop_table("promoted_calibrations")
