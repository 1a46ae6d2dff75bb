"""Sweeps: progress, contents of the table, and where to read it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from service.answers.estimates import Versions
from service.estimator.question import Documented

SweepStatus = Literal["queued", "running", "succeeded", "failed", "cancelled"]
"""Where a sweep is. Failed and cancelled ones hold the rows that were done before, and can be resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepColumnAnswer(Documented):
    """One column of the table of a sweep."""

    name: str
    """What it is called."""
    type: Literal["int64", "double", "string"]
    """What its cells hold; each but the row's number may be null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRows(Documented):
    """What became of the rows so far."""

    total: int
    """Rows of the sweep."""
    done: int
    """Computed rows, including those of incomplete pieces."""
    kept: int
    """Rows of whole pieces: the table holds these."""
    answered: int
    """Those of them that have an answer."""
    refused: int
    """Rows without an answer, each with its reason."""
    fitting: int
    """Rows whose job fits, or may fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepShards(Documented):
    """Pieces of a sweep, by where each is."""

    queued: int
    """Waiting for a worker."""
    running: int
    """At a worker."""
    succeeded: int
    """Done."""
    failed: int
    """Tried in vain."""
    cancelled: int
    """Stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepAnswer(Documented):
    """A sweep: how far it is, and where its table is read."""

    id: str
    """What it is read by."""
    name: str | None
    """What the team calls it."""
    kind: Literal["estimate", "plan"]
    """What each row is."""
    status: SweepStatus
    """Where it is."""
    rows: SweepRows
    """What became of its rows so far."""
    shards: SweepShards
    """Its pieces."""
    done_fraction: float
    """Share of the rows that are done."""
    left_seconds: float | None
    """Time until it is done, by the pieces that are done; null while none is, or while no worker is at it."""
    reasons: tuple[str, ...]
    """Why pieces failed, each once."""
    columns: tuple[SweepColumnAnswer, ...]
    """Columns of its table."""
    versions: Versions
    """Versions under which all its rows are computed."""
    created_at: str
    """Time of its creation, in UTC."""
    finished_at: str | None
    """When its last piece ended, in UTC; null before."""
    links: Mapping[str, str]
    """Where its events and its table are, and how it is cancelled and resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """A sweep as the list shows it."""

    id: str
    """What it is read by: swp_ and 128 random bits."""
    name: str | None
    """What the team calls it."""
    kind: str
    """What each row is: estimate or plan."""
    owner: str
    """Whose it is."""
    status: SweepStatus
    """Where it is."""
    rows: int
    """How many rows it has."""
    formulas: str
    """Version of the formulas that answer it."""
    catalogue: str
    """Digest of the facts that it was read with."""
    calibration: str | None
    """Calibrations of its GPUs; null where there are none."""
    created_at: str
    """Time of its creation, in UTC."""
