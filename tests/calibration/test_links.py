"""Fitted constants of links and networks, and their held-out error."""

from collections.abc import Iterator
from dataclasses import astuple, fields
from statistics import median
from typing import Any

import pytest

from service.catalogue import shipped_catalogue
from service.estimator.time import collectives
from service.estimator.time.collectives import LINKS, NETWORK_FRACTION, Curve, InSwitch, Link
from tests.calibration import links

FITTED = ("NVLINK_3", "NVLINK_4", "NVLINK_5", "HOST_BUS", "CUBE_MESH")
SWITCHED = ("NVLINK_3", "NVLINK_4", "NVLINK_5")
ROUNDED = {"start_seconds": 6e-9, "hop_seconds": 6e-10, "root_seconds": 6e-9}
SHARE_ROUNDED = 6e-4
"""What rounding the constants of the table may change."""

FIGURES = {
    ("NVLINK_3", "all_reduce"): (0.078, 0.083, None),
    ("NVLINK_3", "all_gather"): (0.067, 0.102, None),
    ("NVLINK_3", "reduce_scatter"): (0.072, 0.089, None),
    ("NVLINK_3", "all_to_all"): (0.040, 0.049, None),
    ("NVLINK_4", "all_reduce"): (0.049, 0.125, 0.053),
    ("NVLINK_4", "all_gather"): (0.045, 0.053, 0.047),
    ("NVLINK_4", "reduce_scatter"): (0.040, 0.044, 0.043),
    ("NVLINK_4", "all_to_all"): (0.043, 0.043, 0.054),
    ("NVLINK_5", "all_reduce"): (0.110, 0.283, 0.112),
    ("NVLINK_5", "all_gather"): (0.095, 0.116, 0.095),
    ("NVLINK_5", "reduce_scatter"): (0.088, 0.111, 0.090),
    ("NVLINK_5", "all_to_all"): (0.038, 0.053, 0.043),
    ("HOST_BUS", "all_reduce"): (0.032, 0.066, None),
    ("HOST_BUS", "all_gather"): (0.036, 0.079, None),
    ("HOST_BUS", "reduce_scatter"): (0.034, 0.084, None),
    ("HOST_BUS", "all_to_all"): (0.082, 0.221, None),
    ("CUBE_MESH", "all_reduce"): (0.226, 0.308, None),
}
"""Mean relative error of messages of 1 MiB and more inside one domain: by the constants, by a fit without the judged
number of ranks, by a fit without the judged GPU (None where a link has one GPU)."""

UNSEEN = {"NVLINK_3": 0.21, "NVLINK_4": 0.26, "NVLINK_5": 0.20}
"""The same by the median of the two other generations: what an unmeasured one has to expect."""


def rows_of(name: str) -> list[links.CollectiveRow]:
    return [row for row in links.collective_rows() if row.machine.link == name and row.domains == 1]


def judged(name: str, operation: str) -> list[links.CollectiveRow]:
    return [row for row in rows_of(name) if row.operation == operation and row.is_scored]


def link(name: str) -> Link:
    found: Link = getattr(collectives, name)
    return found


def curves(of: Link) -> Iterator[tuple[str, Curve | InSwitch]]:
    for name in (*links.OPERATIONS, "in_switch"):
        curve = getattr(of, name)
        if curve is not None:
            yield name, curve


def left_out_fraction(name: str, operation: str, key: str) -> float:
    """Mean error where each value of a column is judged by a fit that did not see its rows."""
    own = [row for row in rows_of(name) if row.operation == operation]
    errors: list[float] = []
    for value in sorted({getattr(row, key) for row in own}):
        seen = links.fitted_link([row for row in own if getattr(row, key) != value], link(name))
        rows = [row for row in own if getattr(row, key) == value and row.is_scored]
        errors += [abs(links.predicted_seconds(row, seen) / row.took_seconds - 1) for row in rows]
    return sum(errors) / len(errors)


@pytest.mark.parametrize("name", FITTED)
def test_constants_are_the_fit(name: str) -> None:
    fitted = dict(curves(links.fitted_link(rows_of(name), link(name))))
    for operation, curve in curves(link(name)):
        for field in fields(curve):
            told, found = getattr(curve, field.name), getattr(fitted[operation], field.name)
            assert told == pytest.approx(found, abs=ROUNDED.get(field.name, SHARE_ROUNDED)), (operation, field.name)


@pytest.mark.parametrize(("name", "operation"), FIGURES)
def test_errors_are_the_figures(name: str, operation: str) -> None:
    inside, other_sizes, other_gpus = FIGURES[name, operation]
    assert links.mape_fraction(judged(name, operation), link(name)) == pytest.approx(inside, abs=2e-3)
    assert left_out_fraction(name, operation, "gpus") == pytest.approx(other_sizes, abs=2e-3)
    if other_gpus is not None:
        assert left_out_fraction(name, operation, "gpu") == pytest.approx(other_gpus, abs=2e-3)


@pytest.mark.parametrize("name", SWITCHED)
def test_a_generation_that_was_not_measured(name: str) -> None:
    others = [link(other) for other in SWITCHED if other != name]
    curves_of: dict[str, Any] = {operation: _median(others, operation) for operation in links.OPERATIONS}
    expected = Link(**curves_of, source="the two others")
    rows = [row for operation in links.OPERATIONS for row in judged(name, operation)]
    assert links.mape_fraction(rows, expected) == pytest.approx(UNSEEN[name], abs=6e-3)


def test_the_fallback_is_the_median() -> None:
    for operation in links.OPERATIONS:
        expected = astuple(_median([link(name) for name in SWITCHED], operation))
        assert astuple(getattr(collectives.UNMEASURED, operation)) == pytest.approx(expected)
        for name, value in zip(("start", "hop", "root"), expected, strict=False):
            assert getattr(getattr(collectives.UNMEASURED_MESH, operation), f"{name}_seconds") == value


def _median(of: list[Link], operation: str) -> Curve:
    return Curve(*(median(getattr(getattr(one, operation), field.name) for one in of) for field in fields(Curve)))


def test_a_mesh_of_mi300x() -> None:
    rows = rows_of("UNMEASURED_MESH")
    assert {row.gpus for row in rows} == {2, 8}
    assert links.mape_fraction(rows, collectives.UNMEASURED_MESH) < 0.04


OVER_A_NETWORK_FRACTION = 0.3
"""How far transfers between domains may be off, small ones too."""


def test_between_domains_large_messages_are_known_and_small_ones_are_not() -> None:
    rows = [row for row in links.collective_rows() if row.domains > 1]
    assert links.fitted_network_fraction(rows) == pytest.approx(NETWORK_FRACTION, abs=5e-4)
    large = [row for row in rows if row.message_bytes >= 1 << 29]
    assert links.mape_fraction(large, collectives.NVLINK_5) < 0.02
    assert links.mape_fraction([row for row in rows if row.is_scored], collectives.NVLINK_5) < OVER_A_NETWORK_FRACTION


def test_the_switch_lifts_an_all_reduce_above_the_link() -> None:
    (row,) = (
        row
        for row in links.collective_rows()
        if row.gpu == "h100-sxm5-80gb" and row.message_bytes == 1 << 33 and row.in_switch != "off"
    )
    assert row.busbw_bytes_per_s > row.machine.link_bytes_per_s
    assert links.predicted_seconds(row, collectives.NVLINK_4) == pytest.approx(row.took_seconds, rel=0.05)


@pytest.mark.parametrize(
    "of",
    {id(row): row for row in (*LINKS.values(), collectives.UNMEASURED, collectives.HOST_BUS)}.values(),
    ids=lambda row: row.source[:40],
)
def test_constants_lie_inside_physical_bounds(of: Link) -> None:
    for _, curve in curves(of):
        assert 0 <= curve.start_seconds <= 50e-6
        assert 0 <= curve.root_seconds <= 20e-6
        assert 0.25 <= curve.link_fraction <= 1
        if isinstance(curve, Curve):
            assert 0 <= curve.hop_seconds <= 12e-6
            assert -0.5 <= curve.edge_fraction <= 1
        else:
            assert curve.most_fraction <= 1.1


def test_machines_are_those_of_the_catalogue() -> None:
    gpus = shipped_catalogue().gpus
    for slug, machine in links.MACHINES.items():
        gpu = gpus[slug].gpu
        assert machine.link_bytes_per_s == pytest.approx(gpu.link_bytes_per_s)
        assert link(machine.link) is (collectives.HOST_BUS if gpu.scale_up_gpus == 1 else LINKS[gpu.architecture])
        assert machine.gpus == (8 if gpu.scale_up_gpus == 1 else gpu.scale_up_gpus)


def test_what_was_measured_where_is_told() -> None:
    rows = links.collective_rows()
    assert len(rows) > 1600
    assert all(row.source for row in rows)
    assert {row.gpu for row in rows} == links.MACHINES.keys()
