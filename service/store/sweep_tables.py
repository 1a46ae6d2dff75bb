"""Which table holds sweeps? What their rows are made of, once; their pieces are jobs."""

from sqlalchemy import JSON, Column, DateTime, Integer, LargeBinary, String, Table

from service.store.tables import METADATA

SWEEPS = Table(
    "sweeps",
    METADATA,
    Column("id", String, primary_key=True),
    Column("name", String),
    Column("kind", String, nullable=False),
    Column("owner", String, nullable=False),
    Column("rows", Integer, nullable=False),
    Column("columns", JSON, nullable=False),
    Column("formulas", String, nullable=False),
    Column("catalogue", String, nullable=False),
    Column("calibration", String),
    Column("content", LargeBinary, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, index=True),
)
"""Every sweep. Its content is everything that its rows depend on; none is ever changed."""
