"""Which tables hold what teams asked? Answers as they were given, and scenarios with every revision of them.

A question is kept as plain JSON text, not as JSONB, which would sort its keys and rewrite its numbers.
"""

from sqlalchemy import (
    JSON,
    Column,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Integer,
    LargeBinary,
    String,
    Table,
)

from service.store.tables import METADATA

ESTIMATES = Table(
    "estimates",
    METADATA,
    Column("id", String, primary_key=True),
    Column("answer", LargeBinary, nullable=False),
    Column("stored_at", DateTime(timezone=True), nullable=False),
)
"""Stored answers, byte for byte; none is ever changed, and none removed that a scenario or a launch check speaks of."""

CHECKED_QUESTIONS = Table(
    "checked_questions",
    METADATA,
    Column("estimate_id", String, primary_key=True),
    Column("question", JSON, nullable=False),
    Column("formulas", String, nullable=False),
    Column("catalogue", String, nullable=False),
    Column("asked_at", DateTime(timezone=True), nullable=False, index=True),
)
"""Questions of checks with the versions of their answers, which are worked out again when somebody reads them."""

ESTIMATE_OWNERS = Table(
    "estimate_owners",
    METADATA,
    Column("estimate_id", String, primary_key=True),
    Column("owner", String, primary_key=True),
)
"""Whose stored answers and questions of checks are: several owners may have asked the same."""

SCENARIOS = Table(
    "scenarios",
    METADATA,
    Column("id", String, primary_key=True),
    Column("owner", String, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
)
"""Scenarios that are there, each with the number of its newest revision, which a change has to name."""

SCENARIO_REVISIONS = Table(
    "scenario_revisions",
    METADATA,
    Column("id", String, primary_key=True),
    Column("revision", Integer, primary_key=True, autoincrement=False),
    Column("changed_at", DateTime(timezone=True), nullable=False),
    Column("name", String, nullable=False),
    Column("note", String, nullable=False),
    Column("question", JSON, nullable=False),
    Column("estimate_id", String, ForeignKey("estimates.id"), nullable=False, index=True),
    Column("gpu", String, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("verdict", String, nullable=False),
    Column("device_peak_bytes", Double, nullable=False),
    Column("usable_bytes", Double, nullable=False),
    Column("step_seconds", Double, nullable=False),
    Column("gpu_hours", Double),
    Column("cost_usd", Double),
    Column("formulas", String, nullable=False),
    Column("catalogue", String, nullable=False),
    Column("calibration", String),
    ForeignKeyConstraint(["id"], ["scenarios.id"], ondelete="CASCADE"),
)
"""What each scenario said, revision by revision; they go with their scenario."""

SHARE_LINKS = Table(
    "share_links",
    METADATA,
    Column("id", String, primary_key=True),
    Column("scenario_id", String, ForeignKey("scenarios.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("made_by", String),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False, index=True),
    Column("revoked_at", DateTime(timezone=True)),
    Column("last_used_at", DateTime(timezone=True)),
)
"""Links that show a scenario to whoever has them; they go with their scenario, and some time after they ended."""
