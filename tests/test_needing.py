"""Tests that lack an extra or a program skip, and those that were skipped are the ones that run later."""

from contextlib import nullcontext
from dataclasses import dataclass

import pytest

from tests import needing


@dataclass(frozen=True)
class Item:
    nodeid: str


ITEMS = [Item("a.py::one"), Item("a.py::two[x]"), Item("b.py::three"), Item("service/c.py::service.c.four")]


def test_what_was_skipped_is_selected_by_test_and_by_module() -> None:
    found, others, absent = needing.selected(["a.py::two[x]", "service/c.py"], list(ITEMS))
    assert [item.nodeid for item in found] == ["a.py::two[x]", "service/c.py::service.c.four"]
    assert [item.nodeid for item in others] == ["a.py::one", "b.py::three"]
    assert absent == []


def test_a_skipped_test_that_is_gone_is_named() -> None:
    assert needing.selected(["a.py::one", "a.py::gone"], list(ITEMS))[2] == ["a.py::gone"]


def test_what_is_missing_skips_a_test_and_fails_it_where_nothing_may_be_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(needing.NEEDS, "torch", lambda: "no torch here")
    needing.lacks.cache_clear()
    try:
        monkeypatch.delenv("TRAINCOST_REQUIRE_REAL", raising=False)
        with pytest.raises(pytest.skip.Exception, match="no torch here"):
            needing.need("torch")
        monkeypatch.setenv("TRAINCOST_REQUIRE_REAL", "1")
        with pytest.raises(pytest.fail.Exception, match="no torch here"):
            needing.need("torch")
    finally:
        needing.lacks.cache_clear()


def test_a_marker_names_what_the_table_holds() -> None:
    assert needing.needs("torch", "ray").args == ("torch", "ray")
    with pytest.raises(AssertionError, match="flux"):
        needing.needs("flux")


@pytest.mark.parametrize("everything", [True, False])
def test_a_run_of_everything_leaves_real_programs_to_a_run_of_their_own(
    monkeypatch: pytest.MonkeyPatch, everything: bool
) -> None:
    monkeypatch.setattr(needing, "NEEDS", {"slurm": lambda: None, "namespaces": lambda: None})
    monkeypatch.setattr(needing, "_IS_EVERYTHING", [everything])
    monkeypatch.delenv("TRAINCOST_REQUIRE_REAL", raising=False)
    needing.lacks.cache_clear()
    try:
        needing.need("namespaces")
        left = pytest.raises(pytest.skip.Exception, match=r"drives slurm .*pytest --skipped")
        with left if everything else nullcontext():
            needing.need("slurm", "namespaces")
        monkeypatch.setenv("TRAINCOST_REQUIRE_REAL", "1")
        needing.need("slurm")
    finally:
        needing.lacks.cache_clear()
