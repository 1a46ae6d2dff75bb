"""All tables of the database, grouped by feature; columns have the names of their fields."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.schema import SchemaItem

METADATA = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    }
)

MOMENT = sa.DateTime(timezone=True)
JSON_VALUE = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
JSON_OR_NULL = sa.JSON(none_as_null=True)


def _required(kind: Any, *names: str) -> list[sa.Column[Any]]:
    """Columns of a type that always have a value."""
    return [sa.Column(name, kind, nullable=False) for name in names]


def _optional(kind: Any, *names: str) -> list[sa.Column[Any]]:
    """Columns of a type that may be NULL."""
    return [sa.Column(name, kind) for name in names]


def _table(name: str, key: str, *items: SchemaItem) -> sa.Table:
    """A table with a key of string columns, whose names are separated by spaces; `items` has other keys."""
    return sa.Table(name, METADATA, *(sa.Column(column, sa.String, primary_key=True) for column in key.split()), *items)


def _versions(name: str, key: str, *columns: sa.Column[Any]) -> sa.Table:
    """A table of versions of rows, each valid between two changes of the catalogue; the revision ends the key."""
    names, is_current = ("owner", *key.split()), sa.text("until_change IS NULL")
    return sa.Table(
        name,
        METADATA,
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False, autoincrement=False, server_default="1"),
        sa.Column("since_change", sa.Integer, nullable=False),
        sa.Column("until_change", sa.Integer),
        sa.Column("scope", sa.String, nullable=False, server_default="owner"),
        *columns,
        *_required(sa.String, "source", "as_of", "verified", "note"),
        sa.PrimaryKeyConstraint(*names, "revision"),
        sa.Index(f"uq_{name}_holding", *names, unique=True, sqlite_where=is_current, postgresql_where=is_current),
    )


MODELS = _versions(
    "models",
    "slug",
    *_required(sa.String, "slug", "name", "family"),
    *_required(JSON_VALUE, "aliases"),
    *_optional(sa.String, "hugging_face_id", "release", "not_estimated"),
    *_optional(JSON_VALUE, "model", "published", "exact"),
)

GPUS = _versions(
    "gpus",
    "slug",
    *_required(sa.String, "slug", "name", "vendor", "architecture", "usable_basis", "link_name"),
    *_required(sa.Integer, "release_year", "scale_up_gpus"),
    *_required(JSON_VALUE, "aliases", "default_for"),
    *_required(sa.Double, "memory_bytes", "usable_bytes", "memory_bytes_per_s", "link_bytes_per_s"),
    *_required(sa.Double, "inter_node_bytes_per_s", "host_bytes_per_s", "board_watts"),
    *_optional(sa.Double, "fp32_flop_per_s", "bf16_flop_per_s", "fp16_flop_per_s"),
    *_optional(sa.Double, "fp8_flop_per_s", "fp4_flop_per_s", "int8_flop_per_s"),
    *_optional(JSON_VALUE, "purchase"),
)

CLUSTERS = _versions(
    "clusters",
    "slug",
    *_required(sa.String, "slug", "name", "gpu"),
    *_required(JSON_VALUE, "aliases", "measured_steps"),
    *_required(sa.Integer, "gpus", "gpus_per_node"),
    *_optional(sa.Integer, "scale_up_gpus"),
    *_required(sa.Double, "network_oversubscription"),
    *_required(sa.Boolean, "network_reduction"),
    *_optional(sa.Double, "inter_node_bytes_per_s", "power_limit_watts"),
    *_optional(sa.Double, "failures_per_gpu_hour", "restart_seconds", "spare_fraction"),
    *_optional(sa.Double, "grid_kg_co2e_per_kwh", "pue"),
    *_optional(sa.Double, "busy_power_fraction", "idle_power_fraction", "host_power_fraction"),
    *_optional(sa.String, "grid_region"),
)

PRICES = _versions(
    "prices",
    "provider instance_type gpu region price_model stat as_of",
    *_required(sa.String, "provider", "instance_type", "gpu", "region", "price_model", "stat"),
    *_required(sa.Integer, "gpu_count"),
    *_required(sa.Double, "usd_per_gpu_hour", "usd_per_instance_hour"),
)

RATE_CARDS = _versions("rate_cards", "slug", *_required(sa.String, "slug", "name"), *_required(JSON_VALUE, "rates"))

REGIONS = _versions(
    "regions",
    "slug",
    *_required(sa.String, "slug", "name", "kind"),
    *_optional(sa.String, "country", "pue_source"),
    *_required(JSON_VALUE, "aliases"),
    *_required(sa.Double, "grid_kg_co2e_per_kwh"),
    *_optional(sa.Double, "carbon_free_fraction", "pue"),
)

PROMOTED_CALIBRATIONS = _versions(
    "promoted_calibrations", "scope gpu", *_required(sa.String, "gpu"), *_required(JSON_VALUE, "calibration")
)
"""The promoted calibration of each GPU, and between which changes of the catalogue it was valid."""

CHANGES = _table(
    "changes",
    "",
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("catalogue_revision", sa.String, nullable=False, index=True),
    *_required(MOMENT, "made_at"),
    *_required(sa.String, "owner", "summary"),
)
"""Every change of the catalogue, numbered without a gap, with the digest of the catalogue after it."""

CHANGED_PARTS = _table(
    "changed_parts",
    "part",
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    *_required(sa.String, "digest"),
    sa.Index("ix_changed_parts_number", "number"),
)
"""Parts of all rows that a change touched, with their digests after it: `catalogue` for the rows for everyone, an owner
for its private ones. Changes without parts predate private rows."""

SEEDINGS = _table("seedings", "catalogue_revision", *_required(MOMENT, "seeded_at"))
"""Revision of the catalogue from which the rows of the owner `SHIPPED` come: one row."""


AUDIT_LOG = _table(
    "audit_log",
    "",
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("at", MOMENT, nullable=False, index=True),
    *_required(sa.String, "owner", "operation", "outcome"),
    *_optional(sa.String, "caller", "object", "request_id"),
)
"""Every change with its caller, and denied changes; entries are added and removed, never changed."""


ENDED: frozenset[str] = frozenset(("succeeded", "failed", "cancelled"))
"""Final statuses of a job."""

JOBS = _table(
    "jobs",
    "id",
    *_required(sa.String, "kind", "owner", "requires", "status"),
    sa.Column("parent", sa.String, index=True),
    *_required(sa.JSON, "payload"),
    *_required(sa.Integer, "priority", "attempt", "given_back", "max_attempts", "events"),
    *_required(sa.Double, "timeout_seconds"),
    *_required(MOMENT, "available_at", "created_at"),
    *_optional(MOMENT, "lease_until", "started_at", "finished_at"),
    *_required(sa.Boolean, "cancel_requested"),
    *_optional(JSON_OR_NULL, "progress", "result", "error"),
    *_optional(sa.String, "worker"),
    *_optional(sa.LargeBinary, "lease_digest", "outcome_digest"),
    sa.Column("lease_key", sa.String, nullable=False, server_default=sa.text("''")),
    sa.Column("file_bytes", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("progress_bytes", sa.BigInteger, nullable=False, server_default="0"),
    sa.Index("ix_jobs_kind_created_at", "kind", "created_at"),
    sa.Index("ix_jobs_lease_key", "lease_key", "file_bytes"),
    sa.Index("ix_jobs_queue", "status", "owner", "kind", "requires", "available_at", "priority", "created_at", "id"),
)
"""Every job, with digests of the lease and outcome of its last claim, and the key of the claim (empty without keys).
`attempt` only grows; `given_back` counts released attempts. Equal requirements have equal canonical JSON."""

OWNER_SHARES = _table("job_turns", "owner", sa.Column("served", sa.BigInteger, nullable=False, index=True))
"""The number of each owner's last claim, by which the queue serves owners in turn."""

JOB_EVENTS = _table(
    "job_events",
    "",
    sa.Column("job_id", sa.String, sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    *_required(MOMENT, "at"),
    *_required(sa.String, "name"),
    *_required(sa.JSON, "data"),
)
"""Events of each job, numbered from 1 without gaps; a job that ended long ago keeps only its last event."""

JOB_FILES = _table(
    "job_files",
    "job_id name",
    *_required(sa.String, "media_type"),
    *_required(sa.LargeBinary, "content"),
    sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
)

WORKERS = _table(
    "workers",
    "id",
    *_required(sa.JSON, "capabilities"),
    *_required(MOMENT, "first_seen_at"),
    sa.Column("last_seen_at", MOMENT, nullable=False, index=True),
    sa.Column("key", sa.String, nullable=False, server_default=sa.text("''")),
    *_optional(sa.String, "name", "owner"),
    sa.Index("ix_workers_key", "key", "last_seen_at"),
)
"""Workers that claimed recently, each under its key (empty without keys). The id of a worker with a key is a digest
of key and name, otherwise the name. A worker with an owner takes only that owner's jobs."""


API_KEYS = _table(
    "api_keys",
    "id",
    *_required(sa.LargeBinary, "digest"),
    *_required(sa.String, "name", "owner"),
    *_required(JSON_VALUE, "scopes"),
    *_required(MOMENT, "created_at"),
    *_optional(MOMENT, "expires_at", "revoked_at", "last_used_at"),
    *_optional(sa.Integer, "requests_per_minute", "request_burst"),
    sa.Column("limit_changes", sa.Integer, nullable=False, server_default="0"),
)
"""Every key ever created; revoked keys stay, so that revoking the last one does not open the service."""

SERVER_SECRETS = _table("server_secrets", "name", *_required(sa.LargeBinary, "secret"), *_required(MOMENT, "made_at"))
"""Signing secrets, created on first use and shared by all processes."""


LAUNCH_CHECKS = _table(
    "launch_checks",
    "id",
    sa.Column("estimate_id", sa.String, sa.ForeignKey("estimates.id"), nullable=False, index=True),
    *_required(sa.String, "gpu", "on_workers"),
    *_required(sa.Integer, "gpus"),
    *_required(sa.JSON, "question", "probes", "plan"),
    *_required(sa.Double, "time_budget_seconds"),
    *_optional(JSON_OR_NULL, "found"),
    *_optional(sa.String, "verdict", "device"),
    *_optional(sa.Boolean, "comparable"),
    sa.ForeignKeyConstraint(["id"], ["jobs.id"], ondelete="CASCADE"),
)
"""The question of each launch check, the prediction before it ran, and its findings, written once at its end."""


MEASUREMENTS = _table(
    "measurements",
    "id",
    *_required(sa.String, "owner", "run", "source", "probe", "operation", "quantity"),
    *_required(sa.String, "kind", "device", "fingerprint", "formulas"),
    *_optional(sa.String, "launch_check_id", "gpu", "calibration", "reason"),
    *_required(sa.JSON, "shape", "environment"),
    *_required(sa.Double, "value", "low", "high"),
    *_optional(sa.Double, "relative_error_fraction", "predicted_value"),
    *_required(sa.Integer, "repeats"),
    *_required(MOMENT, "measured_at"),
    *_optional(MOMENT, "quarantined_at"),
    sa.Index("ix_measurements_device_probe", "device", "probe"),
    sa.Index("ix_measurements_launch_check_id", "launch_check_id"),
)
"""Every measurement with the prediction made at the time; calibrations leave out quarantined ones."""

CALIBRATIONS = _table(
    "calibrations",
    "id",
    sa.Column("scope", sa.String, nullable=False, server_default="owner"),
    *_required(sa.String, "owner", "status", "device", "note", "formulas"),
    *_optional(sa.String, "gpu", "replaces"),
    *_required(sa.JSON, "constants", "fitted_on", "parts"),
    *_optional(sa.Double, "held_out_fraction", "in_sample_fraction", "before_fraction"),
    *_required(MOMENT, "created_at"),
    *_optional(MOMENT, "promoted_at", "retired_at"),
    sa.Index("ix_calibrations_device", "device"),
)
"""Every fitted calibration with its errors; the promoted one of a GPU is a row of the catalogue."""


REMEMBERED_ANSWERS = _table(
    "remembered_answers",
    "caller operation key",
    *_required(sa.String, "request_digest"),
    *_required(sa.Integer, "status"),
    *_required(sa.JSON, "headers"),
    *_required(sa.LargeBinary, "content"),
    sa.Column("expires_at", MOMENT, nullable=False, index=True),
)
"""Responses to requests with an Idempotency-Key, by caller and operation; removed after a day."""


ESTIMATES = _table("estimates", "id", *_required(sa.LargeBinary, "answer"), *_required(MOMENT, "stored_at"))
"""Stored answers, byte for byte: never changed, and never removed while a scenario or launch check refers to them."""

CHECKED_QUESTIONS = _table(
    "checked_questions",
    "estimate_id",
    *_required(sa.JSON, "question"),
    *_required(sa.String, "formulas", "catalogue"),
    sa.Column("asked_at", MOMENT, nullable=False, index=True),
)
"""Questions of checks with the versions of their answers, which are computed again on reading."""

ESTIMATE_OWNERS = _table("estimate_owners", "estimate_id owner")
"""Owners of stored answers and of questions of checks; several owners may share one."""

SCENARIOS = _table(
    "scenarios",
    "id",
    *_required(sa.String, "owner"),
    *_required(sa.Integer, "revision"),
    *_required(MOMENT, "created_at"),
)
"""Existing scenarios, each with the number of its newest revision, which a change must name."""

SCENARIO_REVISIONS = _table(
    "scenario_revisions",
    "id",
    sa.Column("revision", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("estimate_id", sa.String, sa.ForeignKey("estimates.id"), nullable=False, index=True),
    *_required(MOMENT, "changed_at"),
    *_required(sa.String, "name", "note", "gpu", "verdict", "formulas", "catalogue"),
    *_optional(sa.String, "calibration"),
    *_required(sa.JSON, "question"),
    *_required(sa.Integer, "gpus"),
    *_required(sa.Double, "device_peak_bytes", "usable_bytes", "step_seconds"),
    *_optional(sa.Double, "gpu_hours", "cost_usd"),
    sa.ForeignKeyConstraint(["id"], ["scenarios.id"], ondelete="CASCADE"),
)

SHARE_LINKS = _table(
    "share_links",
    "id",
    sa.Column("scenario_id", sa.String, sa.ForeignKey("scenarios.id", ondelete="CASCADE"), nullable=False, index=True),
    *_optional(sa.String, "made_by"),
    *_required(MOMENT, "created_at"),
    sa.Column("expires_at", MOMENT, nullable=False, index=True),
    *_optional(MOMENT, "revoked_at", "last_used_at"),
)
"""Links that show a scenario to anyone who has the link; removed with it, or some time after they end."""


SWEEPS = _table(
    "sweeps",
    "id",
    *_optional(sa.String, "name", "calibration"),
    *_required(sa.String, "kind", "owner", "formulas", "catalogue"),
    *_required(sa.Integer, "rows"),
    *_required(sa.JSON, "columns"),
    *_required(sa.LargeBinary, "content"),
    sa.Column("created_at", MOMENT, nullable=False, index=True),
)
"""Every sweep, never changed. Its rows depend only on its content."""
