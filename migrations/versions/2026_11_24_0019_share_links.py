"""Share links have a row each, so that they can be listed and revoked.

Links that were signed before have none: they hold until they expire, or until `traincost shares revoke-unlisted`.
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "share_links",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column(
            "scenario_id", sa.String, sa.ForeignKey("scenarios.id", ondelete="CASCADE"), nullable=False, index=True
        ),
        sa.Column("made_by", sa.String),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False, index=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True)),
        sa.Column("last_used_at", sa.DateTime(timezone=True)),
    )


def downgrade() -> None:
    op.drop_table("share_links")
