"""Scenarios are read as they were stored, and one of several concurrent changes succeeds."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Barrier, Thread

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError

from service.errors import Stale
from service.store import Engine
from service.store.engine import reading
from service.store.scenarios import (
    SavedQuestion,
    Scenario,
    change_scenario,
    create_scenario,
    delete_scenario,
    read_answer,
    read_scenario,
    read_scenarios,
)
from service.store.tables import ESTIMATES, SCENARIO_REVISIONS
from tests.store.conftest import Prepare

FIRST = Scenario(
    id="scn_a",
    name="größer 模型 🚀",
    note="two\nlines",
    owner="team",
    revision=1,
    gpu="h100",
    gpus=8,
    verdict="fits",
    device_peak_bytes=80.5 * 2**30,
    usable_bytes=2.0**37,
    step_seconds=0.1,
    gpu_hours=1e15 / 3,
    cost_usd=None,
    estimate_id="est_a",
    formulas="2026.11",
    catalogue="abc",
    calibration=None,
    created_at="2026-11-21T16:30:00Z",
    changed_at="2026-11-21T16:30:00Z",
)
QUESTION = {"zero": 15e12, "b": {"c": [1, 2.5, None, True, "é"]}, "a": 10**30, "d": 1e300}
SAVED = SavedQuestion(FIRST, QUESTION)
WRITERS = 8


@pytest.fixture
def store(prepare: Prepare) -> Engine:
    engine = prepare()
    create_scenario(engine, SAVED, b'{"first": true}')
    return engine


def _next(saved: SavedQuestion, **changes: object) -> SavedQuestion:
    scenario = replace(saved.scenario, revision=saved.scenario.revision + 1, **changes)  # type: ignore[arg-type]
    return SavedQuestion(scenario, {"n": scenario.revision})


def test_a_scenario_comes_back_equal_with_its_question_as_it_was_sent(store: Engine) -> None:
    found = read_scenario(store, "scn_a")
    assert found is not None
    assert found == SAVED
    assert list(found.question) == list(QUESTION)
    assert isinstance(found.question["zero"], float)
    assert read_scenarios(store) == [FIRST]
    assert read_scenario(store, "scn_b") is None
    assert read_scenario(store, "scn_a", 2) is None


@pytest.mark.parametrize(("formulas", "name"), [("2026.11.6", "bf16-pure"), ("2026.11.7", "bf16")])
def test_a_short_precision_means_what_it_meant_when_it_was_stored(store: Engine, formulas: str, name: str) -> None:
    saved = SavedQuestion(replace(FIRST, id="scn_s", formulas=formulas), {"recipe": {"precision": "bf16", "a": 1}})
    create_scenario(store, saved, b"{}")
    found = read_scenario(store, "scn_s")
    assert found is not None
    assert found.question == {"recipe": {"precision": name, "a": 1}}


def test_every_revision_stays_readable(store: Engine) -> None:
    second = _next(SAVED, name="other", changed_at="2026-11-22T00:00:00Z")
    change_scenario(store, second, None)
    third = _next(second, estimate_id="est_b", cost_usd=2.5)
    change_scenario(store, third, b"second")
    assert read_scenario(store, "scn_a") == third
    assert [read_scenario(store, "scn_a", number) for number in (1, 2, 3)] == [SAVED, second, third]
    assert read_scenarios(store) == [third.scenario]
    assert (read_answer(store, "est_a"), read_answer(store, "est_b")) == (b'{"first": true}', b"second")


def test_an_answer_is_stored_once_and_never_changed(store: Engine) -> None:
    create_scenario(store, SavedQuestion(replace(FIRST, id="scn_b"), {}), b"another text")
    assert read_answer(store, "est_a") == b'{"first": true}'
    assert read_answer(store, "est_c") is None


def test_a_change_from_an_older_revision_is_refused_and_writes_nothing(store: Engine) -> None:
    change_scenario(store, _next(SAVED), None)
    with pytest.raises(Stale):
        change_scenario(store, _next(SAVED, name="lost", estimate_id="est_lost"), b"lost")
    with pytest.raises(Stale):
        delete_scenario(store, "scn_a", 1)
    assert len(read_scenarios(store)) == 1
    assert read_answer(store, "est_lost") is None


def test_deleting_takes_the_revisions_and_leaves_the_answer(store: Engine) -> None:
    change_scenario(store, _next(SAVED), None)
    delete_scenario(store, "scn_a", 2)
    assert read_scenarios(store) == []
    assert read_scenario(store, "scn_a", 1) is None
    with reading(store) as connection:
        assert connection.execute(select(func.count()).select_from(SCENARIO_REVISIONS)).scalar_one() == 0
    assert read_answer(store, "est_a") == b'{"first": true}'
    with pytest.raises(Stale):
        change_scenario(store, _next(SAVED), None)


def test_an_answer_that_nobody_stored_cannot_be_referred_to(store: Engine) -> None:
    with pytest.raises(IntegrityError):
        change_scenario(store, _next(SAVED, estimate_id="est_missing"), None)
    assert read_scenario(store, "scn_a") == SAVED


def _at_once(act: Callable[[int], None]) -> list[str]:
    """What each of several threads reports that do the same at the same moment."""
    barrier = Barrier(WRITERS)
    reports: list[str] = []

    def run(number: int) -> None:
        barrier.wait()
        try:
            act(number)
        except Stale:
            reports.append("stale")
        else:
            reports.append("written")

    threads = [Thread(target=run, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(reports)


def _change_to(store: Engine, following: list[SavedQuestion], writer: int) -> None:
    change_scenario(store, following[writer], None)


def test_of_many_changes_at_once_one_wins(store: Engine) -> None:
    saved = SAVED
    for round_number in range(3):
        following = [_next(saved, name=f"{round_number} {writer}") for writer in range(WRITERS)]
        said = _at_once(partial(_change_to, store, following))
        assert said == ["stale"] * (WRITERS - 1) + ["written"]
        found = read_scenario(store, "scn_a")
        assert found is not None
        assert found in following
        saved = found


def test_a_change_and_a_deletion_at_once_leave_no_half(store: Engine) -> None:
    def act(writer: int) -> None:
        if writer % 2:
            delete_scenario(store, "scn_a", 1)
        else:
            change_scenario(store, _next(SAVED), None)

    assert _at_once(act).count("written") == 1
    found = read_scenario(store, "scn_a")
    assert found is None or found.scenario.revision == 2


def test_many_scenarios_with_one_answer_at_once_store_it_once(store: Engine) -> None:
    def act(writer: int) -> None:
        scenario = replace(FIRST, id=f"scn_{writer}", estimate_id="est_shared")
        create_scenario(store, SavedQuestion(scenario, {}), b"the answer")

    assert _at_once(act) == ["written"] * WRITERS
    with reading(store) as connection:
        assert connection.execute(select(func.count()).select_from(ESTIMATES)).scalar_one() == 2
