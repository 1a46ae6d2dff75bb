"""Where do the figures stand in the source tree? The README of the room of calibration, and the rows it ships."""

from pathlib import Path

from service import calibration
from service.calibration.measured_rows import read_measured_rows, trimmed_table
from service.errors import StartupError
from service.workflows.accuracy.answers import Accuracy
from service.workflows.accuracy.tables import accuracy_markdown
from service.workflows.source_tree import write_generated

README = Path(calibration.__file__).with_name("README.md")
"""Where the table stands."""

PUBLISHED = Path(calibration.__file__).parent / "published" / "memory.csv"
"""The shipped rows."""

BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->\n"
"""What stands around the table."""


def readme_with(text: str, found: Accuracy) -> str:
    """The README with the figures of an answer.

    Args:
        text: the README
        found: the answer

    Returns:
        the README

    Raises:
        StartupError: the marks around the table are gone
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise StartupError(f"{README.name} has no place for the table: {BEGIN.strip()} and {END.strip()} are gone")
    return f"{before}{BEGIN}\n{accuracy_markdown(found)}\n{END}{after}"


def write_accuracy(found: Accuracy) -> Path:
    """Write the figures into the README.

    Args:
        found: the answer

    Returns:
        the file

    Raises:
        StartupError: the package is installed, so there is no source tree around it
    """
    return write_generated(README, readme_with(README.read_text(encoding="utf-8"), found).encode())


def write_measurements(content: bytes) -> Path:
    """Write a table's rows, trimmed to the columns used, as those that the package ships.

    Args:
        content: CSV of measurements

    Returns:
        the file

    Raises:
        Refused: it is no such table
        StartupError: the package is installed, so there is no source tree around it
    """
    return write_generated(PUBLISHED, trimmed_table(read_measured_rows(content)).encode())
