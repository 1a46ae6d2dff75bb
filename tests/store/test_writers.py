"""Of many writers that start from one version of a row exactly one wins, and no update is lost, whoever makes it."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from service.errors import Stale
from service.store.history import History, load_catalogue
from tests.store.conftest import Prepare
from tests.store.racing import change_note, count_up_in_a_row, make_counter, race

WRITERS = 20
ROUNDS = 3
PROCESSES = 4


def test_one_of_many_threads_wins_each_round(prepare: Prepare) -> None:
    engine = prepare()
    history = History(engine, load_catalogue(engine))
    make_counter(history)
    for round_ in range(1, ROUNDS + 1):
        together = Barrier(WRITERS)

        def write(writer: int, revision: int = round_, together: Barrier = together) -> bool:
            together.wait(timeout=60)
            try:
                change_note(history, revision, f"writer {writer}")
            except Stale:
                return False
            return True

        with ThreadPoolExecutor(WRITERS) as threads:
            won = list(threads.map(write, range(WRITERS)))
        assert won.count(True) == 1
        assert history.view("team").rate_cards["counter"].note == f"writer {won.index(True)}"
        assert history.view("team").rate_cards["counter"].revision == round_ + 1
    assert load_catalogue(engine).view("team").rate_cards == history.view("team").rate_cards


def test_processes_lose_no_update_of_a_row(prepare: Prepare, database_url: str) -> None:
    engine = prepare()
    history = History(engine, load_catalogue(engine))
    make_counter(history)
    reports = race(count_up_in_a_row, database_url, PROCESSES)
    assert all(report.endswith(" stale") for report in reports), reports
    history.refresh()
    assert history.view("team").rate_cards["counter"].note == str(PROCESSES * 10)
    changes = history.changes("team")
    assert [change.number for change in reversed(changes)] == list(range(1, PROCESSES * 10 + 3))
