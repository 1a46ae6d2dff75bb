"""All tables of the database, grouped by feature.

A column bears the name of its field, so a name is the same in Python, SQL, JSON and CSV. GPUs and clusters are spread
over columns; a model's architecture, which grows with every layer kind, is one JSON value. A version is never
overwritten: a change closes it and adds the next one, so the catalogue of any earlier change can be read again. The
revision is last in every key, so that the versions of one row are found without reading those of others. Payloads,
results, questions and findings are plain JSON text, which preserves the order of keys and the digits of numbers.
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


def _required(kind: Any, *names: str) -> list[Column[Any]]:
    """Columns of a type that always have a value."""
    return [Column(name, kind, nullable=False) for name in names]


def _optional(kind: Any, *names: str) -> list[Column[Any]]:
    """Columns of a type that may be NULL."""
    return [Column(name, kind) for name in names]


def _version_columns() -> list[SchemaItem]:
    """Owner and version of a row, and the changes of the catalogue between which the version is valid."""
    return [
        Column("owner", String, nullable=False),
        Column("revision", Integer, nullable=False, autoincrement=False, server_default="1"),
        Column("since_change", Integer, nullable=False),
        Column("until_change", Integer),
        Column("scope", String, nullable=False, server_default="owner"),
    ]


def _versions_of(table: str, *key: str) -> list[SchemaItem]:
    """Keys of versions, and the index that allows one current version of a row; both find a row without a scan."""
    holds = text("until_change IS NULL")
    names = ("owner", *key)
    return [
        PrimaryKeyConstraint(*names, "revision"),
        Index(f"uq_{table}_holding", *names, unique=True, sqlite_where=holds, postgresql_where=holds),
    ]


def _provenance() -> list[Column[Any]]:
    """Source, date and verification of the numbers."""
    return _required(String, "source", "as_of", "verified", "note")


MODELS = Table(
    "models",
    METADATA,
    *_version_columns(),
    *_required(String, "slug", "name", "family"),
    Column("aliases", JSON_VALUE, nullable=False),
    *_optional(String, "hugging_face_id", "release"),
    Column("model", JSON_VALUE),
    Column("not_estimated", String),
    *_optional(JSON_VALUE, "published", "exact"),
    *_provenance(),
    *_versions_of("models", "slug"),
)

GPUS = Table(
    "gpus",
    METADATA,
    *_version_columns(),
    *_required(String, "slug", "name", "vendor", "architecture"),
    Column("release_year", Integer, nullable=False),
    *_required(JSON_VALUE, "aliases", "default_for"),
    *_required(Double, "memory_bytes", "usable_bytes"),
    Column("usable_basis", String, nullable=False),
    Column("memory_bytes_per_s", Double, nullable=False),
    *_optional(
        Double,
        "fp32_flop_per_s",
        "bf16_flop_per_s",
        "fp16_flop_per_s",
        "fp8_flop_per_s",
        "fp4_flop_per_s",
        "int8_flop_per_s",
    ),
    Column("link_name", String, nullable=False),
    Column("link_bytes_per_s", Double, nullable=False),
    Column("scale_up_gpus", Integer, nullable=False),
    *_required(Double, "inter_node_bytes_per_s", "host_bytes_per_s", "board_watts"),
    Column("purchase", JSON_VALUE),
    *_provenance(),
    *_versions_of("gpus", "slug"),
)

CLUSTERS = Table(
    "clusters",
    METADATA,
    *_version_columns(),
    *_required(String, "slug", "name"),
    Column("aliases", JSON_VALUE, nullable=False),
    Column("gpu", String, nullable=False),
    *_required(Integer, "gpus", "gpus_per_node"),
    Column("scale_up_gpus", Integer),
    Column("inter_node_bytes_per_s", Double),
    Column("measured_steps", JSON_VALUE, nullable=False),
    Column("power_limit_watts", Double),
    Column("network_oversubscription", Double, nullable=False),
    Column("network_reduction", Boolean, nullable=False),
    *_optional(Double, "failures_per_gpu_hour", "restart_seconds", "spare_fraction"),
    Column("grid_region", String),
    *_optional(
        Double, "grid_kg_co2e_per_kwh", "pue", "busy_power_fraction", "idle_power_fraction", "host_power_fraction"
    ),
    *_provenance(),
    *_versions_of("clusters", "slug"),
)

PRICES = Table(
    "prices",
    METADATA,
    *_version_columns(),
    *_required(String, "provider", "instance_type", "gpu"),
    Column("gpu_count", Integer, nullable=False),
    *_required(String, "region", "price_model", "stat"),
    *_required(Double, "usd_per_gpu_hour", "usd_per_instance_hour"),
    *_provenance(),
    *_versions_of("prices", "provider", "instance_type", "gpu", "region", "price_model", "stat", "as_of"),
)

RATE_CARDS = Table(
    "rate_cards",
    METADATA,
    *_version_columns(),
    *_required(String, "slug", "name"),
    Column("rates", JSON_VALUE, nullable=False),
    *_provenance(),
    *_versions_of("rate_cards", "slug"),
)

REGIONS = Table(
    "regions",
    METADATA,
    *_version_columns(),
    *_required(String, "slug", "name", "kind"),
    Column("country", String),
    Column("aliases", JSON_VALUE, nullable=False),
    Column("grid_kg_co2e_per_kwh", Double, nullable=False),
    *_optional(Double, "carbon_free_fraction", "pue"),
    Column("pue_source", String),
    *_provenance(),
    *_versions_of("regions", "slug"),
)

PROMOTED_CALIBRATIONS = Table(
    "promoted_calibrations",
    METADATA,
    *_version_columns(),
    Column("gpu", String, nullable=False),
    Column("calibration", JSON_VALUE, nullable=False),
    *_provenance(),
    *_versions_of("promoted_calibrations", "scope", "gpu"),
)
"""The promoted calibration of each GPU, and between which changes of the catalogue it was valid."""

CHANGES = Table(
    "changes",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("made_at", MOMENT, nullable=False),
    Column("catalogue_revision", String, nullable=False, index=True),
    *_required(String, "owner", "summary"),
)
"""Every change of the catalogue, numbered without a gap, with the digest of the catalogue after it."""

CHANGED_PARTS = Table(
    "changed_parts",
    METADATA,
    Column("part", String, nullable=False),
    Column("number", Integer, nullable=False, autoincrement=False),
    Column("digest", String, nullable=False),
    PrimaryKeyConstraint("part", "number"),
    Index("ix_changed_parts_number", "number"),
)
"""Parts of all rows that a change touched, with their digests after it: `catalogue` for the rows for everyone, an owner
for its private ones. Changes without any date from when all rows were shared."""

SEEDINGS = Table(
    "seedings",
    METADATA,
    Column("catalogue_revision", String, primary_key=True),
    Column("seeded_at", MOMENT, nullable=False),
)
"""The shipped catalogue of the rows of `SHIPPED`: one row."""


AUDIT_LOG = Table(
    "audit_log",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("at", MOMENT, nullable=False, index=True),
    Column("caller", String),
    *_required(String, "owner", "operation"),
    Column("object", String),
    Column("outcome", String, nullable=False),
    Column("request_id", String),
)
"""Every change with its caller, in the transaction of the change, and refused requests. Rows are added and removed,
never changed."""


ENDED: frozenset[str] = frozenset(("succeeded", "failed", "cancelled"))
"""Final statuses of a job."""

JOBS = Table(
    "jobs",
    METADATA,
    Column("id", String, primary_key=True),
    *_required(String, "kind", "owner"),
    Column("parent", String, index=True),
    Column("requires", String, nullable=False),
    Column("payload", JSON, nullable=False),
    Column("status", String, nullable=False),
    *_required(Integer, "priority", "attempt", "given_back", "max_attempts"),
    Column("timeout_seconds", Double, nullable=False),
    Column("available_at", MOMENT, nullable=False),
    Column("worker", String),
    Column("lease_until", MOMENT),
    Column("created_at", MOMENT, nullable=False),
    *_optional(MOMENT, "started_at", "finished_at"),
    Column("cancel_requested", Boolean, nullable=False),
    *_optional(JSON(none_as_null=True), "progress", "result", "error"),
    Column("events", Integer, nullable=False),
    Column("lease_digest", LargeBinary),
    Column("lease_key", String, nullable=False, server_default=text("''")),
    Column("outcome_digest", LargeBinary),
    Column("file_bytes", BigInteger, nullable=False, server_default="0"),
    Column("progress_bytes", BigInteger, nullable=False, server_default="0"),
    Index("ix_jobs_kind_created_at", "kind", "created_at"),
    Index("ix_jobs_lease_key", "lease_key", "file_bytes"),
    Index(
        "ix_jobs_queue",
        *("status", "owner", "kind", "requires", "available_at", "priority", "created_at", "id"),
    ),
)
"""Every job. Of its last claim: the digest of the lease, the key of the claim (empty without keys) and the digest of
the outcome, once there is one. Attempts only count up; released ones are counted beside. Requirements are canonical
JSON text, so that equal ones are equal texts."""

OWNER_SHARES = Table(
    "job_turns",
    METADATA,
    Column("owner", String, primary_key=True),
    Column("served", BigInteger, nullable=False, index=True),
)
"""Last service of each owner, as a number that counts claims: claims serve owners in turn."""

JOB_EVENTS = Table(
    "job_events",
    METADATA,
    Column("job_id", String, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("at", MOMENT, nullable=False),
    Column("name", String, nullable=False),
    Column("data", JSON, nullable=False),
)
"""Events of each job, numbered from 1 without gaps; of a job that ended long ago, only its end is left."""

JOB_FILES = Table(
    "job_files",
    METADATA,
    Column("job_id", String, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("name", String, primary_key=True),
    Column("media_type", String, nullable=False),
    Column("content", LargeBinary, nullable=False),
)
"""Files of a job's last attempt: traces, tables."""

WORKERS = Table(
    "workers",
    METADATA,
    Column("id", String, primary_key=True),
    Column("capabilities", JSON, nullable=False),
    Column("first_seen_at", MOMENT, nullable=False),
    Column("last_seen_at", MOMENT, nullable=False, index=True),
    Column("key", String, nullable=False, server_default=text("''")),
    *_optional(String, "name", "owner"),
    Index("ix_workers_key", "key", "last_seen_at"),
)
"""Workers that claimed jobs lately, each under its key (empty without keys). The id of a worker with a key is a digest
of key and name, so that two keys may use the same name; without a key it is the name. A worker with an owner takes
that owner's jobs alone."""


API_KEYS = Table(
    "api_keys",
    METADATA,
    Column("id", String, primary_key=True),
    Column("digest", LargeBinary, nullable=False),
    *_required(String, "name", "owner"),
    Column("scopes", JSON_VALUE, nullable=False),
    Column("created_at", MOMENT, nullable=False),
    *_optional(MOMENT, "expires_at", "revoked_at", "last_used_at"),
    *_optional(Integer, "requests_per_minute", "request_burst"),
    Column("limit_changes", Integer, nullable=False, server_default="0"),
)
"""Every key that was ever created; revoked ones stay, so that revoking the last one does not open the service."""

SERVER_SECRETS = Table(
    "server_secrets",
    METADATA,
    Column("name", String, primary_key=True),
    Column("secret", LargeBinary, nullable=False),
    Column("made_at", MOMENT, nullable=False),
)
"""Signing secrets, created on first use and shared by all processes."""


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
"""The question of each launch check, the prediction before it ran, and its findings, written once at its end."""


MEASUREMENTS = Table(
    "measurements",
    METADATA,
    Column("id", String, primary_key=True),
    Column("owner", String, nullable=False),
    Column("launch_check_id", String),
    *_required(String, "run", "source", "probe", "operation"),
    Column("shape", JSON, nullable=False),
    Column("quantity", String, nullable=False),
    *_required(Double, "value", "low", "high"),
    Column("repeats", Integer, nullable=False),
    Column("relative_error_fraction", Double),
    *_required(String, "kind", "device"),
    Column("gpu", String),
    Column("environment", JSON, nullable=False),
    Column("fingerprint", String, nullable=False),
    Column("predicted_value", Double),
    Column("formulas", String, nullable=False),
    Column("calibration", String),
    Column("measured_at", MOMENT, nullable=False),
    Column("quarantined_at", MOMENT),
    Column("reason", String),
    Index("ix_measurements_device_probe", "device", "probe"),
    Index("ix_measurements_launch_check_id", "launch_check_id"),
)
"""Every measurement with its prediction of that time; quarantined ones stay, and calibrations leave them out."""

CALIBRATIONS = Table(
    "calibrations",
    METADATA,
    Column("scope", String, nullable=False, server_default="owner"),
    Column("id", String, primary_key=True),
    *_required(String, "owner", "status"),
    Column("gpu", String),
    *_required(String, "device", "note"),
    *_required(JSON, "constants", "fitted_on", "parts"),
    *_optional(Double, "held_out_fraction", "in_sample_fraction", "before_fraction"),
    Column("formulas", String, nullable=False),
    Column("replaces", String),
    Column("created_at", MOMENT, nullable=False),
    *_optional(MOMENT, "promoted_at", "retired_at"),
    Index("ix_calibrations_device", "device"),
)
"""Every fitted calibration with its errors; the promoted one of a GPU is a row of the catalogue."""


REMEMBERED_ANSWERS = Table(
    "remembered_answers",
    METADATA,
    Column("caller", String, primary_key=True),
    Column("operation", String, primary_key=True),
    Column("key", String, primary_key=True),
    Column("request_digest", String, nullable=False),
    Column("status", Integer, nullable=False),
    Column("headers", JSON, nullable=False),
    Column("content", LargeBinary, nullable=False),
    Column("expires_at", MOMENT, nullable=False, index=True),
)
"""Responses to requests with an Idempotency-Key, by caller and operation; removed after a day."""


ESTIMATES = Table(
    "estimates",
    METADATA,
    Column("id", String, primary_key=True),
    Column("answer", LargeBinary, nullable=False),
    Column("stored_at", MOMENT, nullable=False),
)
"""Stored answers, byte for byte; none is ever changed, and none removed that a scenario or a launch check refers to."""

CHECKED_QUESTIONS = Table(
    "checked_questions",
    METADATA,
    Column("estimate_id", String, primary_key=True),
    Column("question", JSON, nullable=False),
    *_required(String, "formulas", "catalogue"),
    Column("asked_at", MOMENT, nullable=False, index=True),
)
"""Questions of checks with the versions of their answers, which are computed again on reading."""

ESTIMATE_OWNERS = Table(
    "estimate_owners",
    METADATA,
    Column("estimate_id", String, primary_key=True),
    Column("owner", String, primary_key=True),
)
"""Owners of stored answers and of questions of checks; several owners may share one."""

SCENARIOS = Table(
    "scenarios",
    METADATA,
    Column("id", String, primary_key=True),
    Column("owner", String, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("created_at", MOMENT, nullable=False),
)
"""Existing scenarios, each with the number of its newest revision, which a change has to name."""

SCENARIO_REVISIONS = Table(
    "scenario_revisions",
    METADATA,
    Column("id", String, primary_key=True),
    Column("revision", Integer, primary_key=True, autoincrement=False),
    Column("changed_at", MOMENT, nullable=False),
    *_required(String, "name", "note"),
    Column("question", JSON, nullable=False),
    Column("estimate_id", String, ForeignKey("estimates.id"), nullable=False, index=True),
    Column("gpu", String, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("verdict", String, nullable=False),
    *_required(Double, "device_peak_bytes", "usable_bytes", "step_seconds"),
    *_optional(Double, "gpu_hours", "cost_usd"),
    *_required(String, "formulas", "catalogue"),
    Column("calibration", String),
    ForeignKeyConstraint(["id"], ["scenarios.id"], ondelete="CASCADE"),
)
"""Revisions of each scenario; removed with it."""

SHARE_LINKS = Table(
    "share_links",
    METADATA,
    Column("id", String, primary_key=True),
    Column("scenario_id", String, ForeignKey("scenarios.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("made_by", String),
    Column("created_at", MOMENT, nullable=False),
    Column("expires_at", MOMENT, nullable=False, index=True),
    *_optional(MOMENT, "revoked_at", "last_used_at"),
)
"""Links that show a scenario to their bearer; removed with it, and some time after they ended."""


SWEEPS = Table(
    "sweeps",
    METADATA,
    Column("id", String, primary_key=True),
    Column("name", String),
    *_required(String, "kind", "owner"),
    Column("rows", Integer, nullable=False),
    Column("columns", JSON, nullable=False),
    *_required(String, "formulas", "catalogue"),
    Column("calibration", String),
    Column("content", LargeBinary, nullable=False),
    Column("created_at", MOMENT, nullable=False, index=True),
)
"""Every sweep. Its content is all that its rows depend on; none is ever changed."""
