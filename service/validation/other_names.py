"""Names that launchers and people give to fields of a question."""

import csv
import json
import re
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

from service.errors import did_you_mean, nearest

STEPS, ACCUMULATION, NO_EFFECT = "steps", "accumulation", "none"
"""What other names mean that no field has: optimizer steps, micro-batches of a step, and nothing of an answer."""


Switch = tuple[str, object]
"""The path and value that a switch sets; an empty path where it sets none."""


@cache
def switches() -> Mapping[str, Mapping[bool, Switch]]:
    """What other tools' switches set, on and off, by their names."""
    with Path(__file__).with_name("other_switches.csv").open(encoding="utf-8", newline="") as rows:
        return {row["name"]: {True: _set(row["on"]), False: _set(row["off"])} for row in csv.DictReader(rows)}


def _set(text: str) -> Switch:
    path, _, value = text.partition("=")
    return path, json.loads(value) if value else None


@cache
def other_names() -> Mapping[str, tuple[str, ...]]:
    """Dotted paths of the fields that another name may mean; several where tools differ, or one of those above."""
    with Path(__file__).with_name("other_names.csv").open(encoding="utf-8", newline="") as rows:
        return {row["name"]: tuple(row["field"].split(";")) for row in csv.DictReader(rows)}


SPACES = re.compile(r"[-\s]+")
SECTION = re.compile(
    r"^(?:model|train|training|trainer|parallelism|data|tokens|optim|optimizer|lr_scheduler|resources)\."
)
"""Sections of launchers' files in which their options stand. Source: torchtitan, NeMo, nanotron, verl."""


def plain(name: str) -> str:
    """The name of a field or launcher's option in the spelling of the table.

    >>> plain("--Tensor-Parallel"), plain("training.seq_len"), plain("ref.batch_size")
    ('tensor_parallel', 'seq_len', 'ref.batch_size')
    """
    return SECTION.sub("", SPACES.sub("_", name.strip("- ").lower()))


def meant_by(name: str, known: Collection[str]) -> str:
    """A suggestion of the known fields that an unknown name may mean; their paths where they stand elsewhere.

    >>> meant_by("batch_size", ["global_batch", "micro_batch"]), meant_by("tp", ["sequence_length"])
    ('did you mean global_batch or micro_batch?', 'did you mean layout.tensor?')
    """
    meant = [path for path in other_names().get(plain(name), ()) if "." in path]
    here = [field for path in meant if (field := path.rpartition(".")[2]) in known]
    return did_you_mean(here or meant or nearest(name, known))


LONGEST_SHORT = 3
"""Letters of a short name, as in gbs."""


def short_names() -> Mapping[str, str]:
    """Fields by their short names."""
    return {
        name: paths[0].rpartition(".")[2]
        for name, paths in other_names().items()
        if len(name) <= LONGEST_SHORT and len(paths) == 1 and "." in paths[0]
    }


def part_of(name: str) -> str | None:
    """The part of a question in which a name of other tools is understood; None for a name with several meanings."""
    switch = switches().get(plain(name))
    meant = other_names().get(plain(name), ()) if switch is None else (switch[True][0],)
    return (meant[0].partition(".")[0] if "." in meant[0] else "recipe") if len(meant) == 1 else None


def names_without_field() -> tuple[str, ...]:
    """Names of what follows from fields, has no effect, is a switch, or has several meanings."""
    beside = (
        name
        for name, paths in other_names().items()
        if (len(paths) > 1 or "." not in paths[0]) and all(path.rpartition(".")[2] != name for path in paths)
    )
    return (*beside, *switches())
