"""Which tables hold what was measured, and what was fitted on it?

Shapes and environments are kept as plain JSON text, as workers sent them.
"""

from sqlalchemy import JSON, Column, DateTime, Double, Index, Integer, String, Table

from service.store.tables import METADATA

MEASUREMENTS = Table(
    "measurements",
    METADATA,
    Column("id", String, primary_key=True),
    Column("owner", String, nullable=False),
    Column("launch_check_id", String),
    Column("run", String, nullable=False),
    Column("source", String, nullable=False),
    Column("probe", String, nullable=False),
    Column("operation", String, nullable=False),
    Column("shape", JSON, nullable=False),
    Column("quantity", String, nullable=False),
    Column("value", Double, nullable=False),
    Column("low", Double, nullable=False),
    Column("high", Double, nullable=False),
    Column("repeats", Integer, nullable=False),
    Column("relative_error_fraction", Double),
    Column("kind", String, nullable=False),
    Column("device", String, nullable=False),
    Column("gpu", String),
    Column("environment", JSON, nullable=False),
    Column("fingerprint", String, nullable=False),
    Column("predicted_value", Double),
    Column("formulas", String, nullable=False),
    Column("calibration", String),
    Column("measured_at", DateTime(timezone=True), nullable=False),
    Column("quarantined_at", DateTime(timezone=True)),
    Column("reason", String),
    Index("ix_measurements_device_probe", "device", "probe"),
    Index("ix_measurements_launch_check_id", "launch_check_id"),
)
"""Every measurement, beside what was predicted of it then; one in quarantine stays, and nothing is fitted on it."""

CALIBRATIONS = Table(
    "calibrations",
    METADATA,
    Column("scope", String, nullable=False, server_default="owner"),
    Column("id", String, primary_key=True),
    Column("owner", String, nullable=False),
    Column("status", String, nullable=False),
    Column("gpu", String),
    Column("device", String, nullable=False),
    Column("note", String, nullable=False),
    Column("constants", JSON, nullable=False),
    Column("fitted_on", JSON, nullable=False),
    Column("parts", JSON, nullable=False),
    Column("held_out_fraction", Double),
    Column("in_sample_fraction", Double),
    Column("before_fraction", Double),
    Column("formulas", String, nullable=False),
    Column("replaces", String),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("promoted_at", DateTime(timezone=True)),
    Column("retired_at", DateTime(timezone=True)),
    Index("ix_calibrations_device", "device"),
)
"""Every calibration that was fitted, with its errors; which one holds for a GPU is a row of the catalogue."""
