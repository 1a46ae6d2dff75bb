"""All tables of the database, grouped by feature.

A column bears the name of its field, so a name is the same in Python, SQL, JSON and CSV. GPUs and clusters are spread
over columns; a model's architecture, which grows with every layer kind, is one JSON value. Payloads, results, questions
and findings are plain JSON text, which preserves the order of keys and the digits of numbers.
"""

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.schema import SchemaItem

METADATA = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    }
)

MOMENT = DateTime(timezone=True)
JSON_VALUE = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
JSON_OR_NULL = JSON(none_as_null=True)


def _required(kind: Any, *names: str) -> list[Column[Any]]:
    """Columns of a type that always have a value."""
    return [Column(name, kind, nullable=False) for name in names]


def _optional(kind: Any, *names: str) -> list[Column[Any]]:
    """Columns of a type that may be NULL."""
    return [Column(name, kind) for name in names]


def _table(name: str, key: str, *items: SchemaItem) -> Table:
    """A table with a key of texts, separated by spaces; other keys are among the items."""
    return Table(name, METADATA, *(Column(column, String, primary_key=True) for column in key.split()), *items)


def _versions(name: str, key: str, *columns: Column[Any]) -> Table:
    """Versions of rows with their source, date and verification, valid between two changes of the catalogue.

    A version is never overwritten: a change closes it and adds the next one, so the catalogue of any earlier change can
    be read again. The revision is last in the key, so that the versions of one row are found without reading those of
    others; a second index allows one current version of a row.
    """
    names, holds = ("owner", *key.split()), text("until_change IS NULL")
    return Table(
        name,
        METADATA,
        Column("owner", String, nullable=False),
        Column("revision", Integer, nullable=False, autoincrement=False, server_default="1"),
        Column("since_change", Integer, nullable=False),
        Column("until_change", Integer),
        Column("scope", String, nullable=False, server_default="owner"),
        *columns,
        *_required(String, "source", "as_of", "verified", "note"),
        PrimaryKeyConstraint(*names, "revision"),
        Index(f"uq_{name}_holding", *names, unique=True, sqlite_where=holds, postgresql_where=holds),
    )


MODELS = _versions(
    "models",
    "slug",
    *_required(String, "slug", "name", "family"),
    *_required(JSON_VALUE, "aliases"),
    *_optional(String, "hugging_face_id", "release", "not_estimated"),
    *_optional(JSON_VALUE, "model", "published", "exact"),
)

GPUS = _versions(
    "gpus",
    "slug",
    *_required(String, "slug", "name", "vendor", "architecture", "usable_basis", "link_name"),
    *_required(Integer, "release_year", "scale_up_gpus"),
    *_required(JSON_VALUE, "aliases", "default_for"),
    *_required(Double, "memory_bytes", "usable_bytes", "memory_bytes_per_s", "link_bytes_per_s"),
    *_required(Double, "inter_node_bytes_per_s", "host_bytes_per_s", "board_watts"),
    *_optional(Double, "fp32_flop_per_s", "bf16_flop_per_s", "fp16_flop_per_s"),
    *_optional(Double, "fp8_flop_per_s", "fp4_flop_per_s", "int8_flop_per_s"),
    *_optional(JSON_VALUE, "purchase"),
)

CLUSTERS = _versions(
    "clusters",
    "slug",
    *_required(String, "slug", "name", "gpu"),
    *_required(JSON_VALUE, "aliases", "measured_steps"),
    *_required(Integer, "gpus", "gpus_per_node"),
    *_optional(Integer, "scale_up_gpus"),
    *_required(Double, "network_oversubscription"),
    *_required(Boolean, "network_reduction"),
    *_optional(Double, "inter_node_bytes_per_s", "power_limit_watts"),
    *_optional(Double, "failures_per_gpu_hour", "restart_seconds", "spare_fraction"),
    *_optional(Double, "grid_kg_co2e_per_kwh", "pue"),
    *_optional(Double, "busy_power_fraction", "idle_power_fraction", "host_power_fraction"),
    *_optional(String, "grid_region"),
)

PRICES = _versions(
    "prices",
    "provider instance_type gpu region price_model stat as_of",
    *_required(String, "provider", "instance_type", "gpu", "region", "price_model", "stat"),
    *_required(Integer, "gpu_count"),
    *_required(Double, "usd_per_gpu_hour", "usd_per_instance_hour"),
)

RATE_CARDS = _versions("rate_cards", "slug", *_required(String, "slug", "name"), *_required(JSON_VALUE, "rates"))

REGIONS = _versions(
    "regions",
    "slug",
    *_required(String, "slug", "name", "kind"),
    *_optional(String, "country", "pue_source"),
    *_required(JSON_VALUE, "aliases"),
    *_required(Double, "grid_kg_co2e_per_kwh"),
    *_optional(Double, "carbon_free_fraction", "pue"),
)

PROMOTED_CALIBRATIONS = _versions(
    "promoted_calibrations", "scope gpu", *_required(String, "gpu"), *_required(JSON_VALUE, "calibration")
)
"""The promoted calibration of each GPU, and between which changes of the catalogue it was valid."""

CHANGES = _table(
    "changes",
    "",
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("catalogue_revision", String, nullable=False, index=True),
    *_required(MOMENT, "made_at"),
    *_required(String, "owner", "summary"),
)
"""Every change of the catalogue, numbered without a gap, with the digest of the catalogue after it."""

CHANGED_PARTS = _table(
    "changed_parts",
    "part",
    Column("number", Integer, primary_key=True, autoincrement=False),
    *_required(String, "digest"),
    Index("ix_changed_parts_number", "number"),
)
"""Parts of all rows that a change touched, with their digests after it: `catalogue` for the rows for everyone, an owner
for its private ones. Changes without any date from when all rows were shared."""

SEEDINGS = _table("seedings", "catalogue_revision", *_required(MOMENT, "seeded_at"))
"""The shipped catalogue of the rows of `SHIPPED`: one row."""


AUDIT_LOG = _table(
    "audit_log",
    "",
    Column("number", Integer, primary_key=True),
    Column("at", MOMENT, nullable=False, index=True),
    *_required(String, "owner", "operation", "outcome"),
    *_optional(String, "caller", "object", "request_id"),
)
"""Every change with its caller, in the transaction of the change, and refused requests. Rows are added and removed,
never changed."""


ENDED: frozenset[str] = frozenset(("succeeded", "failed", "cancelled"))
"""Final statuses of a job."""

JOBS = _table(
    "jobs",
    "id",
    *_required(String, "kind", "owner", "requires", "status"),
    Column("parent", String, index=True),
    *_required(JSON, "payload"),
    *_required(Integer, "priority", "attempt", "given_back", "max_attempts", "events"),
    *_required(Double, "timeout_seconds"),
    *_required(MOMENT, "available_at", "created_at"),
    *_optional(MOMENT, "lease_until", "started_at", "finished_at"),
    *_required(Boolean, "cancel_requested"),
    *_optional(JSON_OR_NULL, "progress", "result", "error"),
    *_optional(String, "worker"),
    *_optional(LargeBinary, "lease_digest", "outcome_digest"),
    Column("lease_key", String, nullable=False, server_default=text("''")),
    Column("file_bytes", BigInteger, nullable=False, server_default="0"),
    Column("progress_bytes", BigInteger, nullable=False, server_default="0"),
    Index("ix_jobs_kind_created_at", "kind", "created_at"),
    Index("ix_jobs_lease_key", "lease_key", "file_bytes"),
    Index("ix_jobs_queue", "status", "owner", "kind", "requires", "available_at", "priority", "created_at", "id"),
)
"""Every job. Of its last claim: the digest of the lease, the key of the claim (empty without keys) and the digest of
the outcome, once there is one. Attempts only count up; released ones are counted beside. Requirements are canonical
JSON text, so that equal ones are equal texts."""

OWNER_SHARES = _table("job_turns", "owner", Column("served", BigInteger, nullable=False, index=True))
"""Last service of each owner, as a number that counts claims: claims serve owners in turn."""

JOB_EVENTS = _table(
    "job_events",
    "",
    Column("job_id", String, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    *_required(MOMENT, "at"),
    *_required(String, "name"),
    *_required(JSON, "data"),
)
"""Events of each job, numbered from 1 without gaps; of a job that ended long ago, only its end is left."""

JOB_FILES = _table(
    "job_files",
    "job_id name",
    *_required(String, "media_type"),
    *_required(LargeBinary, "content"),
    ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
)
"""Files of a job's last attempt: traces, tables."""

WORKERS = _table(
    "workers",
    "id",
    *_required(JSON, "capabilities"),
    *_required(MOMENT, "first_seen_at"),
    Column("last_seen_at", MOMENT, nullable=False, index=True),
    Column("key", String, nullable=False, server_default=text("''")),
    *_optional(String, "name", "owner"),
    Index("ix_workers_key", "key", "last_seen_at"),
)
"""Workers that claimed jobs lately, each under its key (empty without keys). The id of a worker with a key is a digest
of key and name, so that two keys may use the same name; without a key it is the name. A worker with an owner takes
that owner's jobs alone."""


API_KEYS = _table(
    "api_keys",
    "id",
    *_required(LargeBinary, "digest"),
    *_required(String, "name", "owner"),
    *_required(JSON_VALUE, "scopes"),
    *_required(MOMENT, "created_at"),
    *_optional(MOMENT, "expires_at", "revoked_at", "last_used_at"),
    *_optional(Integer, "requests_per_minute", "request_burst"),
    Column("limit_changes", Integer, nullable=False, server_default="0"),
)
"""Every key that was ever created; revoked ones stay, so that revoking the last one does not open the service."""

SERVER_SECRETS = _table("server_secrets", "name", *_required(LargeBinary, "secret"), *_required(MOMENT, "made_at"))
"""Signing secrets, created on first use and shared by all processes."""


LAUNCH_CHECKS = _table(
    "launch_checks",
    "id",
    Column("estimate_id", String, ForeignKey("estimates.id"), nullable=False, index=True),
    *_required(String, "gpu", "on_workers"),
    *_required(Integer, "gpus"),
    *_required(JSON, "question", "probes", "plan"),
    *_required(Double, "time_budget_seconds"),
    *_optional(JSON_OR_NULL, "found"),
    *_optional(String, "verdict", "device"),
    *_optional(Boolean, "comparable"),
    ForeignKeyConstraint(["id"], ["jobs.id"], ondelete="CASCADE"),
)
"""The question of each launch check, the prediction before it ran, and its findings, written once at its end."""


MEASUREMENTS = _table(
    "measurements",
    "id",
    *_required(String, "owner", "run", "source", "probe", "operation", "quantity"),
    *_required(String, "kind", "device", "fingerprint", "formulas"),
    *_optional(String, "launch_check_id", "gpu", "calibration", "reason"),
    *_required(JSON, "shape", "environment"),
    *_required(Double, "value", "low", "high"),
    *_optional(Double, "relative_error_fraction", "predicted_value"),
    *_required(Integer, "repeats"),
    *_required(MOMENT, "measured_at"),
    *_optional(MOMENT, "quarantined_at"),
    Index("ix_measurements_device_probe", "device", "probe"),
    Index("ix_measurements_launch_check_id", "launch_check_id"),
)
"""Every measurement with its prediction of that time; quarantined ones stay, and calibrations leave them out."""

CALIBRATIONS = _table(
    "calibrations",
    "id",
    Column("scope", String, nullable=False, server_default="owner"),
    *_required(String, "owner", "status", "device", "note", "formulas"),
    *_optional(String, "gpu", "replaces"),
    *_required(JSON, "constants", "fitted_on", "parts"),
    *_optional(Double, "held_out_fraction", "in_sample_fraction", "before_fraction"),
    *_required(MOMENT, "created_at"),
    *_optional(MOMENT, "promoted_at", "retired_at"),
    Index("ix_calibrations_device", "device"),
)
"""Every fitted calibration with its errors; the promoted one of a GPU is a row of the catalogue."""


REMEMBERED_ANSWERS = _table(
    "remembered_answers",
    "caller operation key",
    *_required(String, "request_digest"),
    *_required(Integer, "status"),
    *_required(JSON, "headers"),
    *_required(LargeBinary, "content"),
    Column("expires_at", MOMENT, nullable=False, index=True),
)
"""Responses to requests with an Idempotency-Key, by caller and operation; removed after a day."""


ESTIMATES = _table("estimates", "id", *_required(LargeBinary, "answer"), *_required(MOMENT, "stored_at"))
"""Stored answers, byte for byte; none is ever changed, and none removed that a scenario or a launch check refers to."""

CHECKED_QUESTIONS = _table(
    "checked_questions",
    "estimate_id",
    *_required(JSON, "question"),
    *_required(String, "formulas", "catalogue"),
    Column("asked_at", MOMENT, nullable=False, index=True),
)
"""Questions of checks with the versions of their answers, which are computed again on reading."""

ESTIMATE_OWNERS = _table("estimate_owners", "estimate_id owner")
"""Owners of stored answers and of questions of checks; several owners may share one."""

SCENARIOS = _table(
    "scenarios", "id", *_required(String, "owner"), *_required(Integer, "revision"), *_required(MOMENT, "created_at")
)
"""Existing scenarios, each with the number of its newest revision, which a change has to name."""

SCENARIO_REVISIONS = _table(
    "scenario_revisions",
    "id",
    Column("revision", Integer, primary_key=True, autoincrement=False),
    Column("estimate_id", String, ForeignKey("estimates.id"), nullable=False, index=True),
    *_required(MOMENT, "changed_at"),
    *_required(String, "name", "note", "gpu", "verdict", "formulas", "catalogue"),
    *_optional(String, "calibration"),
    *_required(JSON, "question"),
    *_required(Integer, "gpus"),
    *_required(Double, "device_peak_bytes", "usable_bytes", "step_seconds"),
    *_optional(Double, "gpu_hours", "cost_usd"),
    ForeignKeyConstraint(["id"], ["scenarios.id"], ondelete="CASCADE"),
)
"""Revisions of each scenario; removed with it."""

SHARE_LINKS = _table(
    "share_links",
    "id",
    Column("scenario_id", String, ForeignKey("scenarios.id", ondelete="CASCADE"), nullable=False, index=True),
    *_optional(String, "made_by"),
    *_required(MOMENT, "created_at"),
    Column("expires_at", MOMENT, nullable=False, index=True),
    *_optional(MOMENT, "revoked_at", "last_used_at"),
)
"""Links that show a scenario to their bearer; removed with it, and some time after they ended."""


SWEEPS = _table(
    "sweeps",
    "id",
    *_optional(String, "name", "calibration"),
    *_required(String, "kind", "owner", "formulas", "catalogue"),
    *_required(Integer, "rows"),
    *_required(JSON, "columns"),
    *_required(LargeBinary, "content"),
    Column("created_at", MOMENT, nullable=False, index=True),
)
"""Every sweep. Its content is all that its rows depend on; none is ever changed."""
