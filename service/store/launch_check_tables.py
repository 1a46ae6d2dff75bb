"""Which table holds launch checks, each beside its job?

Questions and findings are kept as plain JSON text, which keeps their keys in order and their numbers as they were.
"""

from sqlalchemy import JSON, Boolean, Column, Double, ForeignKey, Integer, String, Table

from service.store.tables import METADATA

LAUNCH_CHECKS = Table(
    "launch_checks",
    METADATA,
    Column("id", String, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("question", JSON, nullable=False),
    Column("estimate_id", String, ForeignKey("estimates.id"), nullable=False, index=True),
    Column("gpu", String, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("probes", JSON, nullable=False),
    Column("time_budget_seconds", Double, nullable=False),
    Column("on_workers", String, nullable=False),
    Column("plan", JSON, nullable=False),
    Column("found", JSON(none_as_null=True)),
    Column("verdict", String),
    Column("comparable", Boolean),
    Column("device", String),
)
"""What each launch check is about, what was predicted before it ran, and what was found: written once, when it ends."""
