"""No job is lost, run twice or left running, whichever process is killed. Two rounds of each here.

.ci/proof faults takes more of them.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from service.catalogue import shipped_catalogue
from tests.amounts import WHOLE
from tests.databases import new_database, prepared
from tests.worker.faults import kill_services, kill_workers, suspend_workers
from tests.worker.scene import Scene

ROUNDS, CLIENTS = 2, 2
LONG_LEASE_SECONDS = 20.0
"""A job is its worker's for so long: on a busy machine the next service takes longer than a short lease."""


KINDS = ["sqlite", "postgresql"]


def on(kind: str) -> pytest.MarkDecorator:
    """Run a test on one kind of database; on both in `.ci/proof sweeps`. Leases on both: tests/store, tests/api."""
    return pytest.mark.parametrize("scene", KINDS if WHOLE else [kind], indirect=True)


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    with ExitStack() as stack:
        url = f"sqlite:///{tmp_path / 'traincost.db'}"
        if request.param == "postgresql":
            url = stack.enter_context(new_database(request.getfixturevalue("postgresql_server")))
        prepared(url, shipped_catalogue()).dispose()
        yield stack.enter_context(Scene(url, tmp_path))


@on("sqlite")
def test_a_worker_that_is_killed_costs_one_attempt_and_leaves_nothing(scene: Scene) -> None:
    scene.service()
    found = kill_workers(scene, ROUNDS, lanes=ROUNDS)
    assert (found.wrong(timed=False), len(found.released_seconds)) == ([], ROUNDS), found.said()
    assert len(found.gone_seconds) >= ROUNDS - 1, found.said()


@on("sqlite")
def test_a_service_that_is_killed_costs_nothing(scene: Scene) -> None:
    scene.lease_seconds = LONG_LEASE_SECONDS
    found, _ = kill_services(scene, scene.service(), ROUNDS, CLIENTS)
    assert (found.wrong(timed=False), found.kept_running) == ([], ROUNDS), found.said()


@on("postgresql")
def test_both_that_are_killed_cost_one_attempt(scene: Scene) -> None:
    found, _ = kill_services(scene, scene.service(), ROUNDS, CLIENTS, workers_too=True)
    assert (found.wrong(timed=False), len(found.released_seconds)) == ([], ROUNDS), found.said()


@on("postgresql")
def test_a_worker_that_slept_through_its_lease_is_refused(scene: Scene) -> None:
    scene.service()
    found = suspend_workers(scene, 1)
    assert found.wrong(timed=False) == [], found.said()
