"""Claims are proved by leases, owners take turns, and what workers store is counted.

Jobs that run keep their rows. Their claims have no lease, so that their workers are refused and the jobs are handed out
again once their time is up; that attempt does not count.
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

EMPTY = sa.text("''")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("lease_digest", sa.LargeBinary))
    op.add_column("jobs", sa.Column("lease_key", sa.String, nullable=False, server_default=EMPTY))
    op.add_column("jobs", sa.Column("outcome_digest", sa.LargeBinary))
    op.add_column("jobs", sa.Column("file_bytes", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("progress_bytes", sa.BigInteger, nullable=False, server_default="0"))
    op.execute(
        "UPDATE jobs SET file_bytes = (SELECT SUM(LENGTH(content)) FROM job_files WHERE job_files.job_id = jobs.id) "
        "WHERE EXISTS (SELECT 1 FROM job_files WHERE job_files.job_id = jobs.id)"
    )
    op.create_index("ix_jobs_lease_key", "jobs", ["lease_key", "file_bytes"])
    op.create_index(
        "ix_jobs_queue",
        "jobs",
        ["status", "owner", "kind", "requires", "available_at", "priority", "created_at", "id"],
    )
    op.drop_index("ix_jobs_status_kind", "jobs")
    op.add_column("workers", sa.Column("key", sa.String, nullable=False, server_default=EMPTY))
    op.add_column("workers", sa.Column("name", sa.String))
    op.add_column("workers", sa.Column("owner", sa.String))
    op.create_index("ix_workers_key", "workers", ["key", "last_seen_at"])
    op.create_table(
        "job_turns",
        sa.Column("owner", sa.String, primary_key=True),
        sa.Column("served", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_job_turns_served", "job_turns", ["served"])


def downgrade() -> None:
    op.create_index("ix_jobs_status_kind", "jobs", ["status", "kind"])
    op.drop_table("job_turns")
    op.drop_index("ix_workers_key", "workers")
    for index in ("ix_jobs_queue", "ix_jobs_lease_key"):
        op.drop_index(index, "jobs")
    for table, columns in {
        "workers": ("owner", "name", "key"),
        "jobs": ("progress_bytes", "file_bytes", "outcome_digest", "lease_key", "lease_digest"),
    }.items():
        for column in columns:
            op.drop_column(table, column)
