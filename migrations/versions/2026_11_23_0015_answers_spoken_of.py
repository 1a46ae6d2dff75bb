"""Who speaks of a stored answer is found without reading everybody, when an old one is to be removed."""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

TABLES = ("scenario_revisions", "launch_checks")


def upgrade() -> None:
    for table in TABLES:
        op.create_index(f"ix_{table}_estimate_id", table, ["estimate_id"])


def downgrade() -> None:
    for table in TABLES:
        op.drop_index(f"ix_{table}_estimate_id", table)
