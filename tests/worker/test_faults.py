"""Is no job lost, none done twice and nothing left running, whichever process is killed? Two rounds of each here.

.ci/proof faults takes more of them.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.databases import new_database
from tests.worker.faults import kill_services, kill_workers, suspend_workers
from tests.worker.scene import Scene

ROUNDS = 2
LONG_LEASE_SECONDS = 20.0
"""A job is its worker's for so long: on a busy machine the next service takes longer than a short lease."""


@pytest.fixture(params=["sqlite", "postgresql"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    with ExitStack() as stack:
        url = f"sqlite:///{tmp_path / 'traincost.db'}"
        if request.param == "postgresql":
            url = stack.enter_context(new_database(request.getfixturevalue("postgresql_server")))
        yield stack.enter_context(Scene(url, tmp_path))


def test_a_worker_that_is_killed_costs_one_attempt_and_leaves_nothing(scene: Scene) -> None:
    scene.service()
    found = kill_workers(scene, ROUNDS, lanes=ROUNDS)
    assert (found.wrong(), len(found.released_seconds)) == ([], ROUNDS), found.said()
    assert len(found.gone_seconds) >= ROUNDS - 1, found.said()


def test_a_service_that_is_killed_costs_nothing(scene: Scene) -> None:
    scene.lease_seconds = LONG_LEASE_SECONDS
    found, _ = kill_services(scene, scene.service(), ROUNDS)
    assert (found.wrong(), found.kept_running) == ([], ROUNDS), found.said()


def test_both_that_are_killed_cost_one_attempt(scene: Scene) -> None:
    found, _ = kill_services(scene, scene.service(), ROUNDS, workers_too=True)
    assert (found.wrong(), len(found.released_seconds)) == ([], ROUNDS), found.said()


def test_a_worker_that_slept_through_its_lease_is_refused(scene: Scene) -> None:
    scene.service()
    found = suspend_workers(scene, 1)
    assert found.wrong() == [], found.said()
