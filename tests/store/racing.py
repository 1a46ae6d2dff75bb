"""Several processes that do the same thing to one database at the same moment."""

from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from traceback import format_exc

from sqlalchemy import select, text

from service.errors import Stale
from service.features.catalogue.custom_rows import RowChange, create_row, patch_row
from service.features.catalogue.lists import LISTINGS
from service.store.database import prepare_database
from service.store.engine import open_engine, reading, writing
from service.store.history import History, load_catalogue
from service.store.keys import UNRESTRICTED
from service.store.tables import SEEDINGS
from tests.store.small import SMALL

ROUNDS = 50
Act = Callable[[str], str]


def race(act: Act, url: str, processes: int) -> list[str]:
    """What each process reports after calling the same function of a module; a traceback where one failed."""
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])  # one process imports what all of them need, and becomes each of them
    barrier, reports = context.Barrier(processes), context.Queue()
    runners = [context.Process(target=_run, args=(act, url, barrier, reports)) for _ in range(processes)]
    for runner in runners:
        runner.start()
    reported = [reports.get(timeout=600) for _ in runners]
    for runner in runners:
        runner.join()
    return reported


def _run(act: Act, url: str, barrier: Barrier, reports: "Queue[str]") -> None:
    try:
        barrier.wait(timeout=60)
        reports.put(act(url))
    except Exception:
        reports.put(format_exc())


def start(url: str) -> str:
    """Start on the database as the service does, and report what it then holds."""
    engine = prepare_database(url, SMALL)
    revision = load_catalogue(engine).revision
    with reading(engine) as connection:
        seeded_at = connection.execute(select(SEEDINGS.c.seeded_at)).scalar_one()
    engine.dispose()
    return f"{revision} seeded at {seeded_at}"


def count_up_in_a_row(url: str, rounds: int = 10) -> str:
    """Add one to the number in the note of the rate card `counter`, repeatedly; read again where it is stale."""
    engine = open_engine(url)
    history = History(engine, load_catalogue(engine))
    done = stale = 0
    while done < rounds:
        history.refresh()
        card = history.view("team").rate_cards["counter"]
        try:
            change_note(history, card.revision, str(int(card.note) + 1))
        except Stale:
            stale += 1
        else:
            done += 1
    engine.dispose()
    return f"{stale} stale"


def change_note(history: History, revision: int, note: str) -> None:
    """Change the note of the rate card `counter`, if it is still at a revision."""
    change = RowChange(LISTINGS["rate-cards"], "counter", lambda record: record["revision"] == revision, UNRESTRICTED)
    patch_row(history, change, {"note": note})


def make_counter(history: History) -> None:
    """The rate card whose note is a number."""
    rates = [{"gpu": next(iter(history.view("team").gpus)), "usd_per_gpu_hour": 1}]
    create_row(history, LISTINGS["rate-cards"], UNRESTRICTED, {"slug": "counter", "rates": rates, "note": "0"})


def count_up(url: str) -> str:
    """Add one to a number, again and again: read, then write."""
    engine = open_engine(url)
    for _ in range(ROUNDS):
        with writing(engine) as connection:
            number = connection.execute(text("SELECT number FROM counter")).scalar_one()
            connection.execute(text("UPDATE counter SET number = :number"), {"number": number + 1})
    engine.dispose()
    return "done"
