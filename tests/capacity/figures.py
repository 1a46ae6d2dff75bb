"""Figures of a run on the capacity guide. Each has a name and is filled from the run, never by hand."""

import re
from collections.abc import Mapping
from math import ceil
from typing import Any

from service.api.background import FOLLOW_SECONDS, KEPT_DAYS
from service.settings import DATABASE_CONNECTIONS, Settings
from service.worker.command import HEARTBEATS, MOST_WAIT_SECONDS
from tests.capacity.workers import TAKEN
from tests.house.source import SERVICE

PAGE = SERVICE / "web" / "guide" / "capacity.html"
FIGURE = re.compile(r'(<data value="(?P<name>[a-z0-9_.-]+)">)[^<]*(</data>)')
MOST_CONNECTIONS = DATABASE_CONNECTIONS
"""Connections to PostgreSQL that one replica opens at most, where no setting says otherwise."""


def rounded(value: float) -> str:
    """A number with three digits that count."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def figures(run: Mapping[str, Any]) -> dict[str, str]:
    """Every figure by its name: the run's own, as they are, and those that follow from them."""
    found = dict(_flat(run, ""))
    return found | {name: rounded(value) for name, value in _derived(run).items()}


def _flat(value: Any, name: str) -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        return [pair for key, part in value.items() for pair in _flat(part, f"{name}.{key}".strip("."))]
    if isinstance(value, list):
        return [pair for place, part in enumerate(value) for pair in _flat(part, f"{name}.{place}")]
    return [(name, rounded(value) if isinstance(value, int | float) else str(value))]


def _derived(run: Mapping[str, Any]) -> dict[str, float]:
    """What follows from a run."""
    found: dict[str, float] = {"most_connections": MOST_CONNECTIONS, "follow_seconds": FOLLOW_SECONDS}
    rate, database = run["plan"]["rate"], run["costs"]["postgresql"]["costs"]
    loads = [load for part in run["loads"].values() for load in part]
    found |= {"least_load": min(loads), "most_load": max(loads)}
    for kind, plan in run["plan"]["kinds"].items():
        found |= {
            f"{kind}.connections": plan["replicas"] * MOST_CONNECTIONS,
            f"{kind}.database_cores": rate * database[kind]["database_ms"] / 1e3,
            f"{kind}.cores": rate * database[kind]["processor_ms"] / 1e3,
            f"{kind}.memory_gb": plan["replicas"] * run["costs"]["postgresql"]["footprint"]["memory_mb"] / 1e3,
        }
    found["kept_days"] = KEPT_DAYS
    found["check.kept_gb_a_day"] = 86_400 * rate * run["costs"]["postgresql"]["question_bytes"] / 1e9
    lease_seconds = Settings.model_fields["lease_seconds"].default
    heartbeats, claims = HEARTBEATS / lease_seconds, 1.0 / MOST_WAIT_SECONDS
    found |= {"lease_seconds": lease_seconds, "heartbeat_seconds": 1.0 / heartbeats, "wait_seconds": MOST_WAIT_SECONDS}
    found |= {"workers.heartbeats": 1000 * heartbeats, "workers.claims": 1000 * claims}
    for kind, asked in (("heartbeat", 1000 * heartbeats), ("claim", 1000 * claims)):
        found[f"workers.{kind}_core_percent"] = asked * database[kind]["processor_ms"] / 10
        found[f"workers.{kind}_database_percent"] = asked * database[kind]["database_ms"] / 10
    for kind in ("sqlite", "postgresql"):
        faults = run["crowd"][kind]["faults"]
        found[f"crowd.{kind}.again"] = sum(count for what, count in faults.items() if what != TAKEN)
        found[f"crowd.{kind}.lost"] = faults.get(TAKEN, 0)
        for spell in ("waiting", "busy"):
            found |= {
                f"crowd.{kind}.{spell}.{part}_percent": 100 * run["crowd"][kind][spell][f"{part}_fraction"]
                for part in ("processor", "database")
            }
    for kind, rows in run["rows"].items():
        found[f"rows.{kind}.memory_gb"] = rows["rows"] * rows["bytes_per_row"] / 1e9
    found["rows.limit_gb"] = ceil(1.25 * max(rows["peak_gb"] for rows in run["rows"].values()))
    for place, queue in enumerate(run["queues"]):
        for part in ("p50_ms", "p99_ms"):
            error = queue["predicted"][part] / queue["measured"][part] - 1
            found[f"queues.{place}.{part}_error_percent"] = 100 * error
    return found


def filled(page: str, run: Mapping[str, Any]) -> str:
    """A page with the figures of a run, each in place of a `<data value="NAME">...</data>`."""
    known = figures(run)
    return FIGURE.sub(lambda found: f"{found[1]}{known[found['name']]}{found[3]}", page)
