"""Checks of settings, database, catalogue, keys, address and disk for `traincost doctor`, one finding each."""

import shutil
import socket
import tempfile
from collections.abc import Generator, Iterator
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
from service.catalogue import shipped_catalogue
from service.errors import StartupError
from service.estimator import FORMULAS_VERSION
from service.features.launch_checks.launch_checks import ALIVE_SECONDS
from service.settings import LEAST_DATABASE_CONNECTIONS, LOOPBACK, Settings, unknown_settings
from service.store.condition import ConnectionLimits, DatabaseContents, DatabaseState, file_of, inspect_database

State = Literal["ok", "warning", "fault"]

MOST_CLOCK_SECONDS = 5.0
"""Difference of clocks that people notice in dates of answers and leases. Source: a choice."""
LEAST_FREE_BYTES, FEW_FREE_BYTES = 100e6, 1e9
"""Free space below which writing fails soon, and below which a warning is due. Source: a choice."""
ANSWER_SECONDS = 2.0
"""Longest wait for a server's response."""

VERSION_HEADER = "X-Api-Version"
"""Header of every response of a service; its version."""

PROGRAMS = (
    ("torch", "measurements of GPUs", "pip install '.[measure]', on machines with workers that measure"),
    ("ray", "sweeps and measurements on a Ray cluster", "pip install '.[ray]', where workers run with --runner ray"),
)
"""Optional packages: distribution, purpose, and how to install it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    name: str
    """What was checked."""
    state: State
    """fault: the service does not start, or answers wrongly. warning: needs attention. ok: neither."""
    said: str
    """The result."""
    fix: str | None = None
    """The remedy; null where none is needed."""


def examined(settings: Settings) -> Iterator[Finding]:
    """Findings of all settings, except for those that need optional libraries."""
    said = f"traincost {__version__}, formulas {FORMULAS_VERSION}; every value has the form that it should have"
    yield Finding(name="settings", state="ok", said=said)
    for warning in unknown_settings():
        yield Finding(name="variables", state="warning", said=warning, fix="correct its name, or leave it out")
    yield from _of_facts()
    yield from _of_space(settings)
    condition = yield from _of_database(settings)
    if condition is not None and condition.contents is not None:
        yield from _of_contents(condition.contents, settings)
    yield _of_address(settings)
    yield from _of_programs()
    if settings.otlp_endpoint is not None:
        yield _of_collector(settings.otlp_endpoint)


def _of_facts() -> Iterator[Finding]:
    try:
        found = shipped_catalogue()
    except StartupError as error:
        yield Finding(name="facts", state="fault", said=str(error), fix="install the package again")
        return
    said = f"the shipped catalogue is {found.revision}, and each of its values has a source and a date"
    yield Finding(name="facts", state="ok", said=said)


def _of_space(settings: Settings) -> Iterator[Finding]:
    file = file_of(settings.database_url)
    places = {"disk of temporary files": Path(tempfile.gettempdir())}
    if file is not None:
        places["disk of the database"] = next(folder for folder in file.absolute().parents if folder.exists())
    for name, folder in places.items():
        free_bytes = shutil.disk_usage(folder).free
        state: State = "ok"
        if free_bytes < FEW_FREE_BYTES:
            state = "fault" if free_bytes < LEAST_FREE_BYTES else "warning"
        fix = None if state == "ok" else f"make room in {folder}"
        yield Finding(name=name, state=state, said=f"{free_bytes / 1e9:.1f} GB are free in {folder}", fix=fix)


def _of_database(settings: Settings) -> Generator[Finding, None, DatabaseState | None]:
    """Findings of the database; the generator's return value is its state, where it was reached."""
    name, file = "database", file_of(settings.database_url)
    if file is not None and not file.exists():
        fix = "start traincost serve, which makes it, or restore a backup"
        yield Finding(name=name, state="warning", said=f"there is no {file} yet", fix=fix)
        return None
    try:
        found = inspect_database(settings.database_url, ALIVE_SECONDS)
    except StartupError as error:
        fix = "start it, or name another one in TRAINCOST_DATABASE_URL"
        yield Finding(name=name, state="fault", said=str(error), fix=fix)
        return None
    yield Finding(name=name, state="ok", said=f"{found.place} answers")
    yield _of_revision(found)
    if found.refusal is None:
        yield Finding(name="writing", state="ok", said="tables can be made and changed")
    else:
        fix = "let the database's user write, or look whether another process holds the database for long"
        yield Finding(name="writing", state="fault", said=f"nothing can be written: {found.refusal}", fix=fix)
    yield _of_clock(found.clock_difference_seconds)
    if found.room is not None:
        yield _of_room(found.room, settings.database_connections)
    return found


def _of_revision(found: DatabaseState) -> Finding:
    name = "migrations"
    if found.revision == found.expected:
        return Finding(name=name, state="ok", said=f"tables are at revision {found.revision}")
    if found.revision is None or found.revision < found.expected:
        said = f"tables are at revision {found.revision or 'none'}, this version speaks {found.expected}"
        return Finding(name=name, state="warning", said=said, fix="start traincost serve, which migrates them")
    said = f"tables are at revision {found.revision}, which this version does not know; it speaks {found.expected}"
    return Finding(name=name, state="fault", said=said, fix="install the newer traincost that made them")


def _of_room(room: ConnectionLimits, each: int) -> Finding:
    """Findings of the connections. A rolling upgrade runs one more replica."""
    replicas = max(1, room.replicas) + 1
    need, taken = replicas * each, room.connections
    said = f"{replicas} replicas, one of them new, may hold {replicas} x {each} = {need}; the server takes {taken}"
    if need <= taken:
        return Finding(name="connections", state="ok", said=said)
    fewer = taken // replicas
    fix = f"set TRAINCOST_DATABASE_CONNECTIONS to {fewer} or less, or raise max_connections of the server"
    if fewer < LEAST_DATABASE_CONNECTIONS:
        fix = f"raise max_connections of the server; each replica needs {LEAST_DATABASE_CONNECTIONS} at least"
    return Finding(name="connections", state="warning", said=said, fix=fix)


def _of_clock(ahead_seconds: float) -> Finding:
    said = f"the database's clock is {round(ahead_seconds, 1) + 0.0:+.1f} s from this machine's"
    if abs(ahead_seconds) <= MOST_CLOCK_SECONDS:
        return Finding(name="clock", state="ok", said=said)
    return Finding(name="clock", state="warning", said=said, fix="let both machines follow a time server")


def _of_contents(held: DatabaseContents, settings: Settings) -> Iterator[Finding]:
    if held.is_whole:
        said = f"the database holds {held.catalogue}, and its rows make that digest"
        yield Finding(name="catalogue", state="ok", said=said)
    else:
        said = f"rows do not make the digest {held.catalogue} that their last change wrote"
        yield Finding(name="catalogue", state="fault", said=said, fix="restore a backup; somebody changed rows by hand")
    yield _of_keys(held, settings)
    alive = [one.id for one in held.workers if one.is_alive]
    if alive:
        said = "1 was heard of just now" if len(alive) == 1 else f"{len(alive)} were heard of just now"
        yield Finding(name="workers", state="ok", said=said)
    else:
        said = f"none was heard of within {ALIVE_SECONDS:.0f} s; launch checks and sweeps wait"
        fix = "start traincost worker, or serve without --no-worker"
        yield Finding(name="workers", state="warning", said=said, fix=fix)


def _of_keys(held: DatabaseContents, settings: Settings) -> Finding:
    standings = [key_status(key, datetime.now(UTC)) for key in held.keys]
    active = standings.count("active")
    if active:
        return Finding(name="keys", state="ok", said=f"callers need a key; {active} of {len(standings)} hold")
    if settings.oidc_jwks is not None:
        return Finding(name="keys", state="ok", said=f"callers need a token of {settings.oidc_issuer}; no key holds")
    if standings:
        said = f"callers need a key, and none of {len(standings)} holds any longer"
        return Finding(name="keys", state="warning", said=said, fix="traincost keys create")
    if _is_loopback(settings.host):
        return Finding(name="keys", state="ok", said="there are none, and only this machine reaches the service")
    state: State = "warning" if settings.insecure else "fault"
    said = f"there are none, and other machines reach {settings.host}"
    return Finding(name="keys", state=state, said=said, fix="traincost keys create")


def _of_address(settings: Settings) -> Finding:
    name, place = "address", f"{settings.host} port {settings.port}"
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        with socket.create_server((settings.host, settings.port), family=family):
            return Finding(name=name, state="ok", said=f"{place} is free")
    except (OSError, UnicodeError) as error:
        if (running := _version_at(LOOPBACK.get(settings.host, settings.host), settings.port)) is not None:
            return Finding(name=name, state="ok", said=f"{place} is taken by traincost {running}, which answers")
        said = f"{place} cannot be taken: {getattr(error, 'strerror', None) or type(error).__name__}"
        fix = "choose another with TRAINCOST_PORT or TRAINCOST_HOST; 0 is any free port"
        return Finding(name=name, state="warning", said=said, fix=fix)


def _version_at(host: str, port: int) -> str | None:
    """The version of the service at an address; None where there is none."""
    asking = HTTPConnection(host, port, timeout=ANSWER_SECONDS)
    try:
        asking.request("GET", "/healthz")
        answer = asking.getresponse()
        return answer.headers[VERSION_HEADER] if answer.status == HTTPStatus.OK else None
    except (OSError, HTTPException, UnicodeError):
        return None
    finally:
        asking.close()


def _of_programs() -> Iterator[Finding]:
    for name, purpose, fix in PROGRAMS:
        try:
            yield Finding(name=name, state="ok", said=f"{version(name)} is here, for {purpose}")
        except PackageNotFoundError:
            yield Finding(name=name, state="ok", said=f"not here; needed for {purpose} alone", fix=fix)


def _of_collector(endpoint: str) -> Finding:
    parts = urlsplit(endpoint)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), timeout=ANSWER_SECONDS).close()
    except OSError:
        fix = "start it, or correct TRAINCOST_OTLP_ENDPOINT; requests are answered without it"
        return Finding(name="collector", state="warning", said=f"nothing listens at {endpoint}", fix=fix)
    return Finding(name="collector", state="ok", said=f"{endpoint} listens")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
