"""A stored answer is read by the owners whose it is: of scenarios, of launch checks, and of those who checked it.

Answers of scenarios and launch checks that are there become their owners'. Of the others the owner is not known: they
become the only owner's where there is but one, and are left to admins where there are several.
"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

KNOWN = """
INSERT INTO estimate_owners (estimate_id, owner)
SELECT revisions.estimate_id, scenarios.owner FROM scenario_revisions AS revisions
JOIN scenarios ON scenarios.id = revisions.id
UNION
SELECT launch_checks.estimate_id, jobs.owner FROM launch_checks JOIN jobs ON jobs.id = launch_checks.id
"""
OWNERS = """
SELECT owner FROM api_keys UNION SELECT owner FROM scenarios UNION SELECT owner FROM jobs
"""
OTHERS = """
INSERT INTO estimate_owners (estimate_id, owner)
SELECT every.id, CAST(:owner AS VARCHAR) FROM
(SELECT id FROM estimates UNION SELECT estimate_id AS id FROM checked_questions) AS every
WHERE NOT EXISTS (SELECT 1 FROM estimate_owners WHERE estimate_owners.estimate_id = every.id)
"""
TEAM = "team"
"""Owner of what is made where callers are not told apart."""


def upgrade() -> None:
    op.create_table(
        "estimate_owners",
        sa.Column("estimate_id", sa.String, primary_key=True),
        sa.Column("owner", sa.String, primary_key=True),
    )
    connection = op.get_bind()
    connection.execute(sa.text(KNOWN))
    owners = set(connection.execute(sa.text(OWNERS)).scalars()) - {""}
    if len(owners) <= 1:
        connection.execute(sa.text(OTHERS), {"owner": next(iter(owners), TEAM)})


def downgrade() -> None:
    op.drop_table("estimate_owners")
