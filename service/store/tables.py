"""All tables of the database, grouped by feature.

A column bears the name of its field, so a name is the same in Python, SQL, JSON and CSV. GPUs and clusters are spread
over columns; a model's architecture, which grows with every layer kind, is one JSON value. A version is never
overwritten: a change closes it and adds the next one, so the catalogue of any earlier change can be read again. The
revision is last in every key, so that the versions of one row are found without reading those of others. Payloads,
results, questions and findings are plain JSON text, which preserves the order of keys and the digits of numbers.
"""

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

JSON_VALUE = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


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


def _provenance() -> list[Column[str]]:
    """Source, date and verification of the numbers."""
    return [Column(name, String, nullable=False) for name in ("source", "as_of", "verified", "note")]


MODELS = Table(
    "models",
    METADATA,
    *_version_columns(),
    Column("slug", String, nullable=False),
    Column("name", String, nullable=False),
    Column("family", String, nullable=False),
    Column("aliases", JSON_VALUE, nullable=False),
    Column("hugging_face_id", String),
    Column("release", String),
    Column("model", JSON_VALUE),
    Column("not_estimated", String),
    Column("published", JSON_VALUE),
    Column("exact", JSON_VALUE),
    *_provenance(),
    *_versions_of("models", "slug"),
)

GPUS = Table(
    "gpus",
    METADATA,
    *_version_columns(),
    Column("slug", String, nullable=False),
    Column("name", String, nullable=False),
    Column("vendor", String, nullable=False),
    Column("architecture", String, nullable=False),
    Column("release_year", Integer, nullable=False),
    Column("aliases", JSON_VALUE, nullable=False),
    Column("default_for", JSON_VALUE, nullable=False),
    Column("memory_bytes", Double, nullable=False),
    Column("usable_bytes", Double, nullable=False),
    Column("usable_basis", String, nullable=False),
    Column("memory_bytes_per_s", Double, nullable=False),
    Column("fp32_flop_per_s", Double),
    Column("bf16_flop_per_s", Double),
    Column("fp16_flop_per_s", Double),
    Column("fp8_flop_per_s", Double),
    Column("fp4_flop_per_s", Double),
    Column("int8_flop_per_s", Double),
    Column("link_name", String, nullable=False),
    Column("link_bytes_per_s", Double, nullable=False),
    Column("scale_up_gpus", Integer, nullable=False),
    Column("inter_node_bytes_per_s", Double, nullable=False),
    Column("host_bytes_per_s", Double, nullable=False),
    Column("board_watts", Double, nullable=False),
    Column("purchase", JSON_VALUE),
    *_provenance(),
    *_versions_of("gpus", "slug"),
)

CLUSTERS = Table(
    "clusters",
    METADATA,
    *_version_columns(),
    Column("slug", String, nullable=False),
    Column("name", String, nullable=False),
    Column("aliases", JSON_VALUE, nullable=False),
    Column("gpu", String, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("gpus_per_node", Integer, nullable=False),
    Column("scale_up_gpus", Integer),
    Column("inter_node_bytes_per_s", Double),
    Column("measured_steps", JSON_VALUE, nullable=False),
    Column("power_limit_watts", Double),
    Column("network_oversubscription", Double, nullable=False),
    Column("network_reduction", Boolean, nullable=False),
    Column("failures_per_gpu_hour", Double),
    Column("restart_seconds", Double),
    Column("spare_fraction", Double),
    Column("grid_region", String),
    Column("grid_kg_co2e_per_kwh", Double),
    Column("pue", Double),
    Column("busy_power_fraction", Double),
    Column("idle_power_fraction", Double),
    Column("host_power_fraction", Double),
    *_provenance(),
    *_versions_of("clusters", "slug"),
)

PRICES = Table(
    "prices",
    METADATA,
    *_version_columns(),
    Column("provider", String, nullable=False),
    Column("instance_type", String, nullable=False),
    Column("gpu", String, nullable=False),
    Column("gpu_count", Integer, nullable=False),
    Column("region", String, nullable=False),
    Column("price_model", String, nullable=False),
    Column("stat", String, nullable=False),
    Column("usd_per_gpu_hour", Double, nullable=False),
    Column("usd_per_instance_hour", Double, nullable=False),
    *_provenance(),
    *_versions_of("prices", "provider", "instance_type", "gpu", "region", "price_model", "stat", "as_of"),
)

RATE_CARDS = Table(
    "rate_cards",
    METADATA,
    *_version_columns(),
    Column("slug", String, nullable=False),
    Column("name", String, nullable=False),
    Column("rates", JSON_VALUE, nullable=False),
    *_provenance(),
    *_versions_of("rate_cards", "slug"),
)

REGIONS = Table(
    "regions",
    METADATA,
    *_version_columns(),
    Column("slug", String, nullable=False),
    Column("name", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("country", String),
    Column("aliases", JSON_VALUE, nullable=False),
    Column("grid_kg_co2e_per_kwh", Double, nullable=False),
    Column("carbon_free_fraction", Double),
    Column("pue", Double),
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
    Column("made_at", DateTime(timezone=True), nullable=False),
    Column("catalogue_revision", String, nullable=False, index=True),
    Column("owner", String, nullable=False),
    Column("summary", String, nullable=False),
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
    Column("seeded_at", DateTime(timezone=True), nullable=False),
)
"""The shipped catalogue of the rows of `SHIPPED`: one row."""


AUDIT_LOG = Table(
    "audit_log",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("at", DateTime(timezone=True), nullable=False, index=True),
    Column("caller", String),
    Column("owner", String, nullable=False),
    Column("operation", String, nullable=False),
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
    Column("kind", String, nullable=False),
    Column("owner", String, nullable=False),
    Column("parent", String, index=True),
    Column("requires", String, nullable=False),
    Column("payload", JSON, nullable=False),
    Column("status", String, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("given_back", Integer, nullable=False),
    Column("max_attempts", Integer, nullable=False),
    Column("timeout_seconds", Double, nullable=False),
    Column("available_at", DateTime(timezone=True), nullable=False),
    Column("worker", String),
    Column("lease_until", DateTime(timezone=True)),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("started_at", DateTime(timezone=True)),
    Column("finished_at", DateTime(timezone=True)),
    Column("cancel_requested", Boolean, nullable=False),
    Column("progress", JSON(none_as_null=True)),
    Column("result", JSON(none_as_null=True)),
    Column("error", JSON(none_as_null=True)),
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
    Column("at", DateTime(timezone=True), nullable=False),
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
    Column("first_seen_at", DateTime(timezone=True), nullable=False),
    Column("last_seen_at", DateTime(timezone=True), nullable=False, index=True),
    Column("key", String, nullable=False, server_default=text("''")),
    Column("name", String),
    Column("owner", String),
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
    Column("name", String, nullable=False),
    Column("owner", String, nullable=False),
    Column("scopes", JSON_VALUE, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("expires_at", DateTime(timezone=True)),
    Column("revoked_at", DateTime(timezone=True)),
    Column("last_used_at", DateTime(timezone=True)),
    Column("requests_per_minute", Integer),
    Column("request_burst", Integer),
    Column("limit_changes", Integer, nullable=False, server_default="0"),
)
"""Every key that was ever created; revoked ones stay, so that revoking the last one does not open the service."""

SERVER_SECRETS = Table(
    "server_secrets",
    METADATA,
    Column("name", String, primary_key=True),
    Column("secret", LargeBinary, nullable=False),
    Column("made_at", DateTime(timezone=True), nullable=False),
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
    Column("run", String, nullable=False),
    Column("source", String, nullable=False),
    Column("probe", String, nullable=False),
    Column("operation", String, nullable=False),
    Column("shape", JSON, nullable=False),
    Column("quantity", String, nullable=False),
    Column("value", Double, nullable=False),
    Column("low", Double, nullable=False),
    Column("high", Double, nullable=False),
    Column("repeats", Integer, nullable=False),
    Column("relative_error_fraction", Double),
    Column("kind", String, nullable=False),
    Column("device", String, nullable=False),
    Column("gpu", String),
    Column("environment", JSON, nullable=False),
    Column("fingerprint", String, nullable=False),
    Column("predicted_value", Double),
    Column("formulas", String, nullable=False),
    Column("calibration", String),
    Column("measured_at", DateTime(timezone=True), nullable=False),
    Column("quarantined_at", DateTime(timezone=True)),
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
    Column("owner", String, nullable=False),
    Column("status", String, nullable=False),
    Column("gpu", String),
    Column("device", String, nullable=False),
    Column("note", String, nullable=False),
    Column("constants", JSON, nullable=False),
    Column("fitted_on", JSON, nullable=False),
    Column("parts", JSON, nullable=False),
    Column("held_out_fraction", Double),
    Column("in_sample_fraction", Double),
    Column("before_fraction", Double),
    Column("formulas", String, nullable=False),
    Column("replaces", String),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("promoted_at", DateTime(timezone=True)),
    Column("retired_at", DateTime(timezone=True)),
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
    Column("expires_at", DateTime(timezone=True), nullable=False, index=True),
)
"""Responses to requests with an Idempotency-Key, by caller and operation; removed after a day."""


ESTIMATES = Table(
    "estimates",
    METADATA,
    Column("id", String, primary_key=True),
    Column("answer", LargeBinary, nullable=False),
    Column("stored_at", DateTime(timezone=True), nullable=False),
)
"""Stored answers, byte for byte; none is ever changed, and none removed that a scenario or a launch check refers to."""

CHECKED_QUESTIONS = Table(
    "checked_questions",
    METADATA,
    Column("estimate_id", String, primary_key=True),
    Column("question", JSON, nullable=False),
    Column("formulas", String, nullable=False),
    Column("catalogue", String, nullable=False),
    Column("asked_at", DateTime(timezone=True), nullable=False, index=True),
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
    Column("created_at", DateTime(timezone=True), nullable=False),
)
"""Existing scenarios, each with the number of its newest revision, which a change has to name."""

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
"""Revisions of each scenario; removed with it."""

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
"""Links that show a scenario to their bearer; removed with it, and some time after they ended."""


SWEEPS = Table(
    "sweeps",
    METADATA,
    Column("id", String, primary_key=True),
    Column("name", String),
    Column("kind", String, nullable=False),
    Column("owner", String, nullable=False),
    Column("rows", Integer, nullable=False),
    Column("columns", JSON, nullable=False),
    Column("formulas", String, nullable=False),
    Column("catalogue", String, nullable=False),
    Column("calibration", String),
    Column("content", LargeBinary, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, index=True),
)
"""Every sweep. Its content is all that its rows depend on; none is ever changed."""
