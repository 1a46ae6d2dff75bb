"""A new measurement is compared with measurements of its kind only."""

import tracemalloc
from dataclasses import replace

import pytest
from sqlalchemy import Engine

from service.calibration.records import ProbeRecord
from service.catalogue import shipped_catalogue
from service.evaluation.accuracy import own_groups
from service.features.measurements import measurements
from service.features.measurements.measurements import Origin, measurements_in, quarantined
from service.store.engine import writing
from service.store.keys import TEAM, UNRESTRICTED
from service.store.measurements import Measured, measurements_like, read_measurements, store_measurements_in
from tests.calibration.observations import ENVIRONMENT, products, records_of
from tests.store.conftest import Prepare

RECORDS = records_of(products())
MOST_BYTES_OF_A_ROW = 600
"""What figures of accuracy may hold of one measurement, whose own values take some thousand bytes."""


def rows_of(engine: Engine, run: str, records: list[ProbeRecord] = RECORDS) -> list[Measured]:
    """Measurements of a run, kept."""
    origin = Origin(source="tests", run=run, measured_at="2026-11-23T08:00:00Z", owner=TEAM)
    with writing(engine) as connection:
        return measurements_in(connection, records, origin, lambda _: None, None)


def test_only_measurements_of_the_same_kind_are_looked_at(prepare: Prepare) -> None:
    empty = prepare()
    rows = rows_of(empty, "first")
    elsewhere = records_of(products(), replace(ENVIRONMENT, driver="another"))
    others = rows_of(empty, "second", elsewhere)
    doubted = replace(rows[0], id="msr_doubted", quarantined_at="2026-11-23T08:00:00Z", reason="x")
    with writing(empty) as connection:
        store_measurements_in(connection, [doubted, replace(rows[0], id="msr_other", operation="another")])
        assert {row.id for row in measurements_like(connection, rows, 9)} == {row.id for row in rows}
        assert {row.id for row in measurements_like(connection, others, 9)} == {row.id for row in others}
        assert measurements_like(connection, [], 9) == []
    assert len(read_measurements(empty)) == 2 * len(rows) + 2


def test_what_is_there_already_is_gone_through_once(prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = prepare()
    known = [replace(row, id=f"{row.id}-{number}") for row in rows_of(empty, "first") for number in range(20)]

    def refuse(*_: object) -> bool:
        raise AssertionError("a measurement was compared with another one as a whole")

    monkeypatch.setattr(Measured, "__eq__", refuse)
    found = quarantined(rows_of(empty, "second"), known)
    assert all(row.reason is None for row in found)


def test_a_measurement_that_came_before_counts_once(prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    empty, seen = prepare(), list[int]()
    rows = rows_of(empty, "first")
    others = rows_of(empty, "second")
    monkeypatch.setattr(measurements, "outlier_reason", lambda _, values: seen.append(len(values)))
    quarantined(rows, [*rows, *others])
    assert seen == [1] * len(rows)


def test_the_newest_of_the_same_shapes_are_read_and_no_others(prepare: Prepare) -> None:
    empty = prepare()
    rows = rows_of(empty, "first")
    (one, *_), moments = rows, [f"2026-11-24T08:00:0{second}Z" for second in range(5)]
    newer = [replace(row, id=f"{row.id}-{moment}", measured_at=moment) for row in rows for moment in moments]
    renamed = replace(one, id="msr_renamed", shape={**one.shape, "name": "another"})
    with writing(empty) as connection:
        store_measurements_in(connection, [*newer, renamed])
        found = {row.id for row in measurements_like(connection, [one], 3)}
    assert found == {"msr_renamed", *(f"{one.id}-{moment}" for moment in moments[-3:])}


def test_figures_of_accuracy_do_not_hold_the_measurements(prepare: Prepare) -> None:
    empty, catalogue = prepare(), shipped_catalogue()
    rows = rows_of(empty, "first")
    more = [replace(row, id=f"{row.id}-{number}", predicted_value=row.value) for row in rows for number in range(100)]
    with writing(empty) as connection:
        store_measurements_in(connection, more)
    own_groups(empty, UNRESTRICTED, catalogue)
    tracemalloc.start()
    (group,) = own_groups(empty, UNRESTRICTED, catalogue)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (group.measurements, group.scored) == (len(rows) + len(more), len(more))
    assert most_bytes < MOST_BYTES_OF_A_ROW * len(more)
