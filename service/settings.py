"""Settings of this process: one frozen Settings, read once from the environment and the command line."""

import os
import re
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from service.errors import StartupError, did_you_mean, misspelt
from service.logs import LogFormat

PREFIX = "TRAINCOST_"
MOST_DRAIN_SECONDS = 8.0
"""Longest drain: the process ends within 10 s of SIGTERM."""
MOST_PER_MINUTE = 10_000_000
MOST_AT_ONCE = 1_000_000
"""Most that a caller may be allowed in a minute, and at once. Source: choices, far above what is ever answered."""
DATABASE_CONNECTIONS = 10
"""Default connections to the database. Source: measured; with 48 clients, 5 to 50 differ less than two equal runs."""
WORKER_FILE_BYTES = 20 << 30
"""Default bytes of files of one key's workers: thousands of traces, or a billion table rows. Source: a choice."""
WORKERS_PER_KEY = 2_500
"""Default workers of one key: the fleet of /guide/capacity, restarted under new names. Source: a choice."""
LEAST_DATABASE_CONNECTIONS = 4
"""Fewest connections: one for the replica heartbeat, one for background tasks, two for requests."""
SLIP_OF_THE_PEN = 0.9
"""Likeness above which an unknown variable is taken for a misspelt setting, not for a variable of another program."""

LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what such a listener hears
"""How this machine itself reaches who listens on every address."""
OF_OTHERS = frozenset(PREFIX + name for name in ("URL", "KEY", "TOKEN"))
"""Variables that commands take which ask a service."""
OF_TESTS = re.compile(PREFIX + r"(TEST_\w+|TOOLS|REQUIRE_REAL)")
"""Variables of the project's own tests, which start services."""
OF_KUBERNETES = re.compile(r"_(SERVICE_(HOST|PORT)\w*|PORT(_\d+_(TCP|UDP|SCTP)\w*)?)$")
"""Variables that Kubernetes sets in a pod for Services whose names begin with the settings' prefix."""


def _default_database_url() -> str:
    """A file in the user's own data folder, where an installed program may write whatever folder it starts in."""
    configured = Path(os.environ.get("XDG_DATA_HOME", ""))
    try:
        folder = configured if configured.is_absolute() else Path.home() / ".local" / "share"
    except RuntimeError:
        raise StartupError("the user has no home folder to keep the database in; set TRAINCOST_DATABASE_URL") from None
    return f"sqlite:///{folder / 'traincost' / 'traincost.db'}"


def _split(value: object) -> object:
    return _listed(value) if isinstance(value, str) else value


def _roles(value: object) -> object:
    return [part.rpartition("=")[::2] for part in _listed(value)] if isinstance(value, str) else value


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _jwks(text: str) -> str:
    parts = urlsplit(text)
    is_near = parts.hostname in {"localhost", "127.0.0.1", "::1"}
    if "://" in text and not (parts.scheme == "https" or (parts.scheme == "http" and is_near)):
        raise ValueError("should be an https address (http on this machine alone), or the path of a file")
    return text


def _origin(text: str) -> str:
    parts = urlsplit(text)
    if text != "*" and (parts.scheme not in {"http", "https"} or text != f"{parts.scheme}://{parts.netloc}"):
        raise ValueError("should be * or scheme and host like https://tools.example.org, no path")
    return text


def _network(text: str) -> str:
    try:
        return str(ip_network(text))
    except ValueError:
        raise ValueError("should be an address, or a network like 10.0.0.0/8 with no bit behind its length") from None


def _origin_with_path(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.netloc or parts.query or "@" in parts.netloc:
        raise ValueError("should be an address like http://localhost:4318, without a query")
    return text.rstrip("/")


def _name(text: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9.-]{1,253}", text) is None:
        raise ValueError("should be a name like traincost.example.org, without scheme, port or path")
    return text.lower()


Days = Annotated[float, Field(ge=0, le=36_500, allow_inf_nan=False)]

RoleScope = Literal["read", "write", "worker", "admin", "sheet"]
Role = tuple[Annotated[str, Field(min_length=1, max_length=200)], RoleScope]
TokenAlgorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Algorithms of RFC 7518 and RFC 8037 that are checked with a public key."""


class Settings(BaseSettings):
    """Every setting, each the environment variable of its name with TRAINCOST_ before it; empty counts as absent."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, frozen=True, use_attribute_docstrings=True
    )

    database_url: str = Field(default_factory=_default_database_url, repr=False)
    """SQLite file (sqlite:////folder/traincost.db) or PostgreSQL (postgresql://user:password@host/name);
    where absent, the file traincost/traincost.db in the user's data folder ($XDG_DATA_HOME or ~/.local/share)."""
    database_connections: Annotated[int, Field(ge=LEAST_DATABASE_CONNECTIONS, le=1000)] = DATABASE_CONNECTIONS
    """Most connections to the database at once; those of all processes have to stay below its max_connections."""
    host: Annotated[str, Field(min_length=1, max_length=255)] = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for every IPv4 address of the machine."""
    host_names: Annotated[tuple[Annotated[str, AfterValidator(_name)], ...], NoDecode, BeforeValidator(_split)] = ()
    """Further names, separated by commas, under which a service without keys on loopback answers: a proxy's Host."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """Port to listen on; 0 for any free one. (Kubernetes sets TRAINCOST_PORT itself in a namespace with a Service
    called traincost: give the pod enableServiceLinks: false.)"""
    cors_origins: Annotated[tuple[Annotated[str, AfterValidator(_origin)], ...], NoDecode, BeforeValidator(_split)] = ()
    """Web origins that may call from a browser, separated by commas; * for any; none where absent."""
    admission_token: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{16,128}$")] | None = Field(default=None, repr=False)
    """Secret part of the Kubernetes webhook's address, 16 to 128 letters, digits, - and _; no webhook where absent."""
    frame_ancestors: Annotated[
        tuple[Annotated[str, AfterValidator(_origin)], ...], NoDecode, BeforeValidator(_split)
    ] = ()
    """Web origins that may show the page at / in a frame, separated by commas; * for any; none where absent."""
    insecure: bool = False
    """Whether to start without any key on an address that other machines reach; true or false."""
    connections: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Concurrent connections, beyond which the service answers 503; fewer where ulimit -n allows fewer files."""
    idle_seconds: Annotated[int, Field(ge=1, le=3600)] = 75
    """Keep-alive time of an idle connection: longer than that of proxies and clients, so that no request meets a
    closing connection. Source: nginx keeps those to its upstreams for 60 s (keepalive_timeout of its upstream module),
    httpx its own for 5 s (keepalive_expiry)."""
    trusted_proxies: Annotated[
        tuple[Annotated[str, AfterValidator(_network)], ...], NoDecode, BeforeValidator(_split)
    ] = ()
    """Proxies with trusted X-Forwarded-For and -Proto, as addresses or networks (10.0.0.0/8), separated by commas."""
    lease_seconds: Annotated[float, Field(ge=1, le=3600)] = 60.0
    """Time without a heartbeat after which a worker loses its job; the same for every process on one database."""
    no_worker: bool = False
    """Whether to start no worker beside the service: where others measure, or many processes share a database."""
    compute_processes: Annotated[int, Field(ge=1, le=256)] | None = None
    """Processes for searches, tables and batches, some 60 MB each; one less than the cores (1 to 8) where absent."""
    stream_seconds: Annotated[float, Field(ge=1, le=86_400)] = 600.0
    """Longest time of one event stream, after which the client reconnects and authenticates again."""
    keep_jobs_days: Days = 400.0
    """Retention of sweeps, and of launch checks without stored measurements, after their end; 0 for ever."""
    keep_job_files_days: Days = 100.0
    """Retention of traces and events of launch checks after their end; 0 for ever."""
    keep_measurements_days: Days = 0.0
    """Retention of measurements that no calibration was fitted on, from the time of measurement; 0 for ever."""
    keep_answers_days: Days = 400.0
    """Retention of stored answers that no scenario and no launch check refers to; 0 for ever."""
    keep_audit_days: Days = 1100.0
    """Retention of audit entries; 0 for ever."""
    oidc_issuer: Annotated[str, Field(min_length=1, max_length=2048)] | None = None
    """Issuer (`iss`) of the tokens that callers may send instead of a key; tokens are rejected where absent."""
    oidc_audience: Annotated[str, Field(min_length=1, max_length=2048)] | None = None
    """Required audience (`aud`) of a token: this service, as the issuer names it."""
    oidc_jwks: Annotated[str, AfterValidator(_jwks)] | None = None
    """Location of the issuer's public keys: an https address, or the path of a file."""
    oidc_algorithms: Annotated[tuple[TokenAlgorithm, ...], NoDecode, BeforeValidator(_split), Field(min_length=1)] = (
        "RS256",
        "ES256",
    )
    """Accepted signature algorithms, separated by commas; only those with a public key."""
    oidc_owner_claim: Annotated[str, Field(min_length=1, max_length=200)] = "sub"
    """Claim with the owner of the caller's objects: one that callers cannot choose; a.b for b inside a."""
    oidc_scopes_claim: Annotated[str, Field(min_length=1, max_length=200)] = "scope"
    """Claim with the caller's roles: a list of names, or a text of names separated by spaces; a.b for b inside a."""
    oidc_roles: Annotated[tuple[Role, ...], NoDecode, BeforeValidator(_roles)] = tuple(
        (f"traincost:{scope}", scope) for scope in get_args(RoleScope)
    )
    """Scopes of those roles, as name=scope separated by commas: ml-engineers=write,platform=admin."""
    log_level: Literal["critical", "error", "warning", "info", "debug"] = "info"
    """Least serious messages to write; debug adds a line for each request."""
    log_format: LogFormat = "text"
    """Format of log lines: text for people, json for programs."""
    drain_seconds: Annotated[float, Field(ge=0, le=MOST_DRAIN_SECONDS)] = 0.0
    """Time between failing /readyz and closing the listening socket, for the load balancer to notice; 0 to 8."""
    requests_per_minute: Annotated[int, Field(ge=0, le=MOST_PER_MINUTE)] = 12_000
    """Requests that one key, or one address without a key, may send in a minute in the long run; 0 for any number. A
    service that only this machine reaches and that asks for no key has no limits."""
    request_burst: Annotated[int, Field(ge=1, le=MOST_AT_ONCE)] = 4_000
    """Requests that one caller may send at once after a pause: a sheet asks for all of its cells together."""
    worker_requests_per_minute: Annotated[int, Field(ge=0, le=MOST_PER_MINUTE)] = 120_000
    """Requests that the workers of one key, or of one address without a key, may send in a minute in the long run; 0
    for any number. A thousand workers that report news every second send 60,000, that only keep their leases 4,000."""
    worker_request_burst: Annotated[int, Field(ge=1, le=MOST_AT_ONCE)] = 20_000
    """Requests that they may send at once after a pause: a fleet that was cut off comes back together."""
    workers_per_key: Annotated[int, Field(ge=1, le=1_000_000)] = WORKERS_PER_KEY
    """Names of workers that are known of one key; where there are as many, one that is not heard of makes room."""
    worker_file_bytes: Annotated[int, Field(ge=0, le=1 << 50)] = WORKER_FILE_BYTES
    """Bytes that the files of all jobs may have which one key claimed, and that are still stored."""
    redis_url: Annotated[str, Field(pattern=r"^(rediss?|unix)://")] | None = Field(default=None, repr=False)
    """Redis (redis://:password@host:6379/0) in which replicas count requests together; it needs the extra replicas."""
    otlp_endpoint: Annotated[str, AfterValidator(_origin_with_path)] | None = None
    """Collector of traces (OTLP over HTTP) such as http://localhost:4318; it needs the extra telemetry."""

    @model_validator(mode="after")
    def _require_all_token_settings(self) -> Self:
        """Reject an incomplete set of token settings."""
        parts = (self.oidc_issuer, self.oidc_audience, self.oidc_jwks)
        if any(parts) and not all(parts):
            names = [PREFIX + name.upper() for name in ("oidc_issuer", "oidc_audience", "oidc_jwks")]
            raise ValueError(f"{', '.join(names)} belong together: set all of them, or none")
        return self


def read_settings(**given: object) -> Settings:
    _refuse_misspelt()
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    try:
        return Settings(**chosen)
    except ValidationError as error:
        raise StartupError("; ".join(_setting_error(dict(finding), chosen) for finding in error.errors())) from None


def _refuse_misspelt() -> None:
    known = [PREFIX + name.upper() for name in Settings.model_fields]
    for name in sorted(os.environ.keys() - set(known)):
        near = misspelt(name, known, most=1, likeness=SLIP_OF_THE_PEN) if name.startswith(PREFIX) else []
        if near:
            raise StartupError(f"{name} is not a setting; {did_you_mean(near)}")


def unknown_settings() -> list[str]:
    """Warnings about variables that look like settings and have no effect."""
    known = [PREFIX + name.upper() for name in Settings.model_fields]
    named = {name for name in os.environ if name.startswith(PREFIX) and not OF_KUBERNETES.search(name)}
    named = {name for name in named if not OF_TESTS.fullmatch(name)}
    return [
        "; ".join(filter(None, (f"{name} is no setting, and changes nothing", did_you_mean(misspelt(name, known)))))
        for name in sorted(named - {*known, *OF_OTHERS})
    ]


def _setting_error(finding: dict[str, Any], given: dict[str, Any]) -> str:
    if not finding["loc"]:  # it is about several settings, and names them
        return str(finding["msg"]).removeprefix("Value error, ")
    name, *_ = finding["loc"]
    spelled = f"--{name}" if name in given else PREFIX + str(name).upper()
    return f"{spelled}: {str(finding['msg']).removeprefix('Value error, ')}"
