"""The shipped accuracy is that of today, and a stale file is not served."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.answers.accuracy import Accuracy
from service.client.reading import from_json
from service.evaluation import shipped
from service.evaluation.shipped import FILE, ShippedAccuracy, digest_of_tables
from service.validation.reading import to_bytes

STALE: dict[str, Any] = {"formulas": "1900.1.1", "catalogue": "000000000000", "tables": "0000000000000000"}
"""A value of each version that no process has."""


@pytest.fixture(scope="module")
def read() -> ShippedAccuracy:
    return from_json(ShippedAccuracy, json.loads(FILE.read_bytes()))


def test_the_file_holds_the_figures_of_today(read: ShippedAccuracy, found: Accuracy) -> None:
    assert read.tables == digest_of_tables(), "run `traincost write-accuracy`"
    assert to_bytes(read.accuracy) == to_bytes(found), "run `traincost write-accuracy`"
    assert read.is_current
    assert shipped.file_of(read) == FILE.read_bytes()


def test_every_source_and_class_is_checked(read: ShippedAccuracy, found: Accuracy) -> None:
    sources = {group.source_key for group in found.groups if group.scored}
    checked = {name.partition(" ")[2].split("-")[1] for name in read.checks}
    assert sources <= checked


@pytest.mark.parametrize("name", [*STALE, "checks"])
def test_a_stale_file_is_computed_anew(
    name: str, read: ShippedAccuracy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = next(iter(read.checks))
    other = STALE.get(name, {**read.checks, first: read.checks[first] * 1.001})
    stale = replace(read, points=(), **{name: other})
    assert not stale.is_current
    file = tmp_path / FILE.name
    file.write_bytes(shipped.file_of(stale))
    monkeypatch.setattr(shipped, "FILE", file)
    monkeypatch.setattr(shipped, "computed", lambda: replace(read, points=read.points[:1]))
    monkeypatch.setattr(shipped, "_shipped", shipped._shipped.__wrapped__)
    assert shipped.shipped_points() == read.points[:1]
