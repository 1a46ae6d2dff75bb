"""One server for one SQLite file.

A server answers lists and catalogues from memory, and servers on one SQLite file have no way to tell each other of a
write at once. So the second one does not start. Commands work beside the server. The lock is the operating system's:
it goes with the process, however that ends.
"""

import fcntl
import os
from contextlib import suppress
from typing import IO

from sqlalchemy.engine import make_url

from service.errors import StartupError
from service.store.condition import file_of
from service.store.engine import make_folder


def hold_alone(url: str) -> IO[str] | None:
    """Take the lock of an SQLite file for as long as the answer is kept open.

    Args:
        url: the database

    Returns:
        the lock; None where the database is none of SQLite's, or its folder takes no files, which its opening reports

    Raises:
        StartupError: another server holds it
    """
    file = file_of(url)
    if file is None or file.name == ":memory:":
        return None
    make_folder(make_url(url))
    place = file.resolve()
    try:
        held = place.with_name(f"{place.name}.serving").open("a+")
    except OSError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        held.seek(0)
        other = held.read(20).strip() or "unknown"
        held.close()
        message = (
            f"another traincost serve (process {other}) answers from {place}; stop it first, or use PostgreSQL, which "
            "takes several"
        )
        raise StartupError(message) from None
    with suppress(OSError):  # who holds it is told to people only
        held.truncate(0)
        held.write(str(os.getpid()))
        held.flush()
    return held
