"""Several processes that do the same thing to one database at the same moment."""

from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from traceback import format_exc

from sqlalchemy import select, text

from service.store import load_catalogue, prepare_database
from service.store.engine import open_engine, reading, writing
from service.store.tables import SEEDINGS
from tests.store.small import SMALL

ROUNDS = 50
Act = Callable[[str], str]


def race(act: Act, url: str, processes: int) -> list[str]:
    """What each process reports after doing the same thing.

    Args:
        act: what to do with the database; a function of a module, for other processes import it
        url: the database
        processes: how many do it

    Returns:
        their reports; a traceback where one failed
    """
    context = get_context("spawn")
    barrier, reports = context.Barrier(processes), context.Queue()
    runners = [context.Process(target=_run, args=(act, url, barrier, reports)) for _ in range(processes)]
    for runner in runners:
        runner.start()
    reported = [reports.get(timeout=120) for _ in runners]
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


def count_up(url: str) -> str:
    """Add one to a number, again and again: read, then write."""
    engine = open_engine(url)
    for _ in range(ROUNDS):
        with writing(engine) as connection:
            number = connection.execute(text("SELECT number FROM counter")).scalar_one()
            connection.execute(text("UPDATE counter SET number = :number"), {"number": number + 1})
    engine.dispose()
    return "done"
