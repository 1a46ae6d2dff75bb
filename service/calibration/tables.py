"""What does a table of measurements that the package ships hold? Its rows as text, cell by cell."""

import csv
import io
from importlib.resources import files


def shipped_table(name: str) -> list[dict[str, str]]:
    """The rows of a table of `published/`.

    Args:
        name: its file, without folder and ending

    Returns:
        cells by column, a row each

    >>> shipped_table("totals")[0]["model"]
    'Llama 2 7B'
    """
    text = files("service.calibration").joinpath(f"published/{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text, newline="")))
