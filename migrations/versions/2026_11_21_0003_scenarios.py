"""Scenarios: saved questions with every revision of them, and stored answers."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "estimates",
        sa.Column("id", sa.String, nullable=False),
        sa.Column("answer", sa.LargeBinary, nullable=False),
        sa.Column("stored_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_estimates"),
    )
    op.create_table(
        "scenarios",
        sa.Column("id", sa.String, nullable=False),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_scenarios"),
    )
    _make_revisions()


def downgrade() -> None:
    for table in ("scenario_revisions", "scenarios", "estimates"):
        op.drop_table(table)


def _make_revisions() -> None:
    op.create_table(
        "scenario_revisions",
        sa.Column("id", sa.String, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("note", sa.String, nullable=False),
        sa.Column("question", sa.JSON, nullable=False),
        sa.Column("estimate_id", sa.String, nullable=False),
        sa.Column("gpu", sa.String, nullable=False),
        sa.Column("gpus", sa.Integer, nullable=False),
        sa.Column("verdict", sa.String, nullable=False),
        sa.Column("device_peak_bytes", sa.Double, nullable=False),
        sa.Column("usable_bytes", sa.Double, nullable=False),
        sa.Column("step_seconds", sa.Double, nullable=False),
        sa.Column("gpu_hours", sa.Double),
        sa.Column("cost_usd", sa.Double),
        sa.Column("formulas", sa.String, nullable=False),
        sa.Column("catalogue", sa.String, nullable=False),
        sa.Column("calibration", sa.String),
        sa.PrimaryKeyConstraint("id", "revision", name="pk_scenario_revisions"),
        sa.ForeignKeyConstraint(
            ["id"], ["scenarios.id"], name="fk_scenario_revisions_id_scenarios", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["estimate_id"], ["estimates.id"], name="fk_scenario_revisions_estimate_id_estimates"),
    )
