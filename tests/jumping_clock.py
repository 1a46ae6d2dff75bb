"""The service on SQLite whose clock runs ahead by as many seconds as a file says: `python -m` this, FILE, its words."""

import sqlite3
import sys
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event


def shift(file: Path) -> None:
    """Set the time of every connection to SQLite ahead by the seconds that a file holds."""

    @event.listens_for(Engine, "connect")
    def _shifted(connection: Any, _record: object) -> None:
        truth = sqlite3.connect(":memory:", check_same_thread=False)

        def strftime(form: str, moment: str, *changes: str) -> str:
            jumped = [f"{file.read_text(encoding='utf-8')} seconds"] if moment == "now" else []
            marks = ", ".join("?" * (2 + len(jumped) + len(changes)))
            found: str = truth.execute(f"SELECT strftime({marks})", (form, moment, *jumped, *changes)).fetchone()[0]
            return found

        if isinstance(connection, sqlite3.Connection):
            connection.create_function("strftime", -1, strftime)


if __name__ == "__main__":
    shift(Path(sys.argv.pop(1)))
    from service.__main__ import main

    main()
