"""Where do the figures stand in the source tree? The README of the room of calibration, and the rows it ships."""

from pathlib import Path

from service import calibration
from service.calibration import steps
from service.calibration.steps import FittedSteps, step_spreads
from service.calibration.tables import FORMS, read_measured_rows, shipped_rows, trimmed_table
from service.catalogue import Catalogue
from service.errors import StartupError
from service.estimator.time.step import StepClass
from service.source_tree import write_generated
from service.workflows.accuracy.answers import Accuracy
from service.workflows.accuracy.judging import judge_all
from service.workflows.accuracy.steps import shipped_seconds, step_rows_of
from service.workflows.accuracy.tables import accuracy_markdown

README = Path(calibration.__file__).with_name("README.md")
"""Where the table stands."""

PUBLISHED = Path(calibration.__file__).parent / "published" / "memory.csv"
"""The shipped rows of memory; those of other kinds of tables stand beside them, by their form's name."""

HELD_OUT = Path(calibration.__file__).parent / steps.FILE
"""What is predicted of the shipped steps by constants that never saw their sources."""

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
    return write_generated(README, lambda: readme_with(README.read_text(encoding="utf-8"), found).encode())


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
    rows = read_measured_rows(content)
    form = next(form for form in FORMS if not rows or form.name == rows[0].form)
    return write_generated(PUBLISHED.with_name(f"{form.name}.csv"), lambda: trimmed_table(rows, form).encode())


def write_held_out(catalogue: Catalogue) -> tuple[Path, dict[StepClass, float]]:
    """Fit without each source in turn, predict its steps, and ship what comes of it.

    Args:
        catalogue: the GPUs

    Returns:
        the file; the spread that each class of steps then has, which step_residuals.RESIDUALS holds

    Raises:
        StartupError: the package is installed, so there is no source tree around it
    """
    judged = judge_all(shipped_rows("throughput"), catalogue)
    rows = step_rows_of(judged)
    model = FittedSteps()
    model.fit(rows)
    predicted = steps.held_out_seconds(rows, model)
    text = steps.held_out_text(predicted, shipped_seconds(judged))
    return write_generated(HELD_OUT, text.encode), step_spreads(rows, steps.rounded(predicted))
