"""Where do measurements come from, and where do their results go? Files that somebody names on the command line."""

from pathlib import Path

from service.calibration.tables import MOST_BYTES, MeasuredRow, read_measured_rows
from service.errors import TraincostError


class Unreadable(TraincostError):
    """A file that was named cannot be read, or not be written."""


def content_of(name: str) -> bytes:
    """What a file holds.

    Args:
        name: its path

    Returns:
        its bytes, at most one more than a table may have

    Raises:
        Unreadable: it cannot be read
    """
    try:
        with Path(name).open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise Unreadable(f"the table of measurements cannot be read: {_cause(error)}") from None


def read_file(name: str) -> tuple[MeasuredRow, ...]:
    """The measurements of a file.

    Args:
        name: its path

    Returns:
        the rows

    Raises:
        Unreadable: it cannot be read
        Refused: it is no table of measurements
    """
    return read_measured_rows(content_of(name))


def refuse_same_file(table: str | Path, rows: str) -> None:
    """Refuse to write rows over the table that they come from.

    Args:
        table: path of the measurements
        rows: path that the rows are to be written to

    Raises:
        Unreadable: both paths lead to one file
    """
    try:
        is_same = Path(rows).is_file() and Path(rows).samefile(table)
    except (OSError, ValueError):
        return
    if is_same:
        message = "the rows would be written over the table that they come from; name another file after --rows"
        raise Unreadable(message)


def write_file(name: str, text: str) -> None:
    """Write a text to a file.

    Args:
        name: its path
        text: what it holds from then on

    Raises:
        Unreadable: it cannot be written
    """
    try:
        Path(name).write_text(text, encoding="utf-8", newline="")
    except (OSError, ValueError) as error:
        raise Unreadable(f"the rows cannot be written: {_cause(error)}") from None


def _cause(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "its name is none"
