"""Checks of settings, database, catalogue, keys, address and disk for `traincost doctor`, one finding each."""

import asyncio
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from importlib.metadata import PackageNotFoundError, version
from ipaddress import ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from service import __version__
from service.api.access.key_rules import key_status
from service.api.limits.rate_limits import WITHOUT_REDIS, has_redis
from service.api.metrics import WITHOUT_OPENTELEMETRY, is_installed
from service.catalogue import checked_catalogue
from service.errors import StartupError
from service.estimator import FORMULAS_VERSION
from service.features.launch_checks.launch_checks import ALIVE_SECONDS
from service.settings import LEAST_DATABASE_CONNECTIONS, LOOPBACK, Settings, read_settings, unknown_settings
from service.store.database import ConnectionLimits, DatabaseContents, DatabaseState, file_of, inspect_database

State = Literal["ok", "warning", "fault"]

MOST_CLOCK_SECONDS = 5.0
"""Difference of clocks that shows in dates of answers and leases. Source: a choice."""
LEAST_FREE_BYTES, FEW_FREE_BYTES = 100e6, 1e9
"""Free space below which writing fails soon, and below which a warning is due. Source: a choice."""
ANSWER_SECONDS = 2.0
"""Longest wait for a server's response."""

VERSION_HEADER = "X-Api-Version"

PROGRAMS = (
    ("torch", "measurements of GPUs", "pip install '.[measure]', on machines with workers that measure"),
    ("ray", "sweeps and measurements on a Ray cluster", "pip install '.[ray]', where workers run with --runner ray"),
)


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    state: State
    """fault: the service does not start, or answers wrongly. warning: needs attention. ok: neither."""
    said: str
    fix: str | None = None
    """The remedy; null where none is needed."""


def _checked(name: str, text: str, fix: str, *, is_ok: bool, otherwise: State = "warning") -> Finding:
    """A finding that has a remedy unless all is well."""
    return Finding(name, "ok", text) if is_ok else Finding(name, otherwise, text, fix)


def findings() -> Iterator[Finding]:
    """Findings of everything that the service needs."""
    try:
        settings = read_settings()
    except StartupError as error:
        yield Finding("settings", "fault", str(error), "correct the variable; /guide/settings lists them")
        return
    yield from examined(settings)
    yield from _of_optional(settings)


def examined(settings: Settings) -> Iterator[Finding]:
    """Findings of all settings, except for those that need optional libraries."""
    text = f"traincost {__version__}, formulas {FORMULAS_VERSION}; every value has the form that it should have"
    yield Finding("settings", "ok", text)
    for warning in unknown_settings():
        yield Finding("variables", "warning", warning, "correct its name, or leave it out")
    try:
        revision = checked_catalogue().revision
        yield Finding(
            "facts", "ok", f"the shipped catalogue is {revision}, and each of its values has a source and a date"
        )
    except StartupError as error:
        yield Finding("facts", "fault", str(error), "install the package again")
    yield from _of_space(settings)
    yield from _of_database(settings)
    yield _of_address(settings)
    for name, purpose, fix in PROGRAMS:
        try:
            yield Finding(name, "ok", f"{version(name)} is here, for {purpose}")
        except PackageNotFoundError:
            yield Finding(name, "ok", f"not here; needed for {purpose} alone", fix)
    if settings.otlp_endpoint is not None:
        yield _of_collector(settings.otlp_endpoint)


def _of_space(settings: Settings) -> Iterator[Finding]:
    file = file_of(settings.database_url)
    folders = {"disk of temporary files": Path(tempfile.gettempdir())}
    if file is not None:
        folders["disk of the database"] = next(folder for folder in file.absolute().parents if folder.exists())
    for name, folder in folders.items():
        free_bytes = shutil.disk_usage(folder).free
        text = f"{free_bytes / 1e9:.1f} GB are free in {folder}"
        otherwise: State = "fault" if free_bytes < LEAST_FREE_BYTES else "warning"
        yield _checked(name, text, f"make room in {folder}", is_ok=free_bytes >= FEW_FREE_BYTES, otherwise=otherwise)


def _of_database(settings: Settings) -> Iterator[Finding]:
    file = file_of(settings.database_url)
    if file is not None and not file.exists():
        fix = "start traincost serve, which makes it, or restore a backup"
        yield Finding("database", "warning", f"there is no {file} yet", fix)
        return
    try:
        state = inspect_database(settings.database_url, ALIVE_SECONDS)
    except StartupError as error:
        yield Finding("database", "fault", str(error), "start it, or name another one in TRAINCOST_DATABASE_URL")
        return
    yield Finding("database", "ok", f"{state.place} answers")
    yield _of_revision(state)
    is_written = state.refusal is None
    text = "tables can be made and changed" if is_written else f"nothing can be written: {state.refusal}"
    fix = "let the database's user write, or look whether another process holds the database for long"
    yield _checked("writing", text, fix, is_ok=is_written, otherwise="fault")
    clock = f"the database's clock is {round(state.clock_difference_seconds, 1) + 0.0:+.1f} s from this machine's"
    is_near = abs(state.clock_difference_seconds) <= MOST_CLOCK_SECONDS
    yield _checked("clock", clock, "let both machines follow a time server", is_ok=is_near)
    if state.room is not None:
        yield _of_room(state.room, settings.database_connections)
    if state.contents is not None:
        yield from _of_contents(state.contents, settings)


def _of_revision(state: DatabaseState) -> Finding:
    if state.revision == state.expected:
        return Finding("migrations", "ok", f"tables are at revision {state.revision}")
    if state.revision is None or state.revision < state.expected:
        text = f"tables are at revision {state.revision or 'none'}, this version speaks {state.expected}"
        return Finding("migrations", "warning", text, "start traincost serve, which migrates them")
    text = f"tables are at revision {state.revision}, which this version does not know; it speaks {state.expected}"
    return Finding("migrations", "fault", text, "install the newer traincost that made them")


def _of_room(room: ConnectionLimits, each: int) -> Finding:
    """Findings of the connections. A rolling upgrade runs one more replica."""
    replicas = max(1, room.replicas) + 1
    need, most = replicas * each, room.connections
    text = f"{replicas} replicas, one of them new, may hold {replicas} x {each} = {need}; the server takes {most}"
    fewer = most // replicas
    fix = f"set TRAINCOST_DATABASE_CONNECTIONS to {fewer} or less, or raise max_connections of the server"
    if fewer < LEAST_DATABASE_CONNECTIONS:
        fix = f"raise max_connections of the server; each replica needs {LEAST_DATABASE_CONNECTIONS} at least"
    return _checked("connections", text, fix, is_ok=need <= most)


def _of_contents(contents: DatabaseContents, settings: Settings) -> Iterator[Finding]:
    text = f"rows do not make the digest {contents.catalogue} that their last change wrote"
    if contents.is_whole:
        text = f"the database holds {contents.catalogue}, and its rows make that digest"
    fix = "restore a backup; rows were changed by hand"
    yield _checked("catalogue", text, fix, is_ok=contents.is_whole, otherwise="fault")
    yield _of_keys(contents, settings)
    alive = sum(worker.is_alive for worker in contents.workers)
    text = f"none was heard of within {ALIVE_SECONDS:.0f} s; launch checks and sweeps wait"
    if alive:
        text = f"{alive} {'was' if alive == 1 else 'were'} heard of just now"
    yield _checked("workers", text, "start traincost worker, or serve without --no-worker", is_ok=alive > 0)


def _of_keys(contents: DatabaseContents, settings: Settings) -> Finding:
    statuses = [key_status(key, datetime.now(UTC)) for key in contents.keys]
    active, create = statuses.count("active"), "traincost keys create"
    if active:
        return Finding("keys", "ok", f"callers need a key; {active} of {len(statuses)} hold")
    if settings.oidc_jwks is not None:
        return Finding("keys", "ok", f"callers need a token of {settings.oidc_issuer}; no key holds")
    if statuses:
        return Finding("keys", "warning", f"callers need a key, and none of {len(statuses)} holds any longer", create)
    with suppress(ValueError):
        if settings.host == "localhost" or ip_address(settings.host).is_loopback:
            return Finding("keys", "ok", "there are none, and only this machine reaches the service")
    text = f"there are none, and other machines reach {settings.host}"
    return Finding("keys", "warning" if settings.insecure else "fault", text, create)


def _of_address(settings: Settings) -> Finding:
    address = f"{settings.host} port {settings.port}"
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        with socket.create_server((settings.host, settings.port), family=family):
            return Finding("address", "ok", f"{address} is free")
    except (OSError, UnicodeError) as error:
        if (running := _version_at(LOOPBACK.get(settings.host, settings.host), settings.port)) is not None:
            return Finding("address", "ok", f"{address} is taken by traincost {running}, which answers")
        text = f"{address} cannot be taken: {getattr(error, 'strerror', None) or type(error).__name__}"
        fix = "choose another with TRAINCOST_PORT or TRAINCOST_HOST; 0 is any free port"
        return Finding("address", "warning", text, fix)


def _version_at(host: str, port: int) -> str | None:
    connection = HTTPConnection(host, port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        return answer.headers[VERSION_HEADER] if answer.status == HTTPStatus.OK else None
    except (OSError, HTTPException, UnicodeError):
        return None
    finally:
        connection.close()


def _of_collector(endpoint: str) -> Finding:
    parts = urlsplit(endpoint)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), timeout=ANSWER_SECONDS).close()
    except OSError:
        fix = "start it, or correct TRAINCOST_OTLP_ENDPOINT; requests are answered without it"
        return Finding("collector", "warning", f"nothing listens at {endpoint}", fix)
    return Finding("collector", "ok", f"{endpoint} listens")


def _of_optional(settings: Settings) -> Iterator[Finding]:
    if settings.otlp_endpoint is not None and not is_installed():
        yield Finding("telemetry", "fault", WITHOUT_OPENTELEMETRY)
    if settings.redis_url is None:
        return
    if not has_redis():
        yield Finding("redis", "fault", WITHOUT_REDIS)
        return
    from service.api.limits.shared_limits import does_answer

    is_ok = asyncio.run(does_answer(settings.redis_url))
    text = "Redis answers, so replicas count requests together" if is_ok else "Redis does not answer"
    fix = "start it, or correct TRAINCOST_REDIS_URL; until then each replica counts alone"
    yield _checked("redis", text, fix, is_ok=is_ok)
