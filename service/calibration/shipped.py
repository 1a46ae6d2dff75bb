"""Which measurements come with the package? The published rows, so that anyone can repeat the figures."""

from functools import cache
from importlib.resources import files

from service.calibration.measured_rows import MeasuredRow, read_measured_rows


@cache
def shipped_rows() -> tuple[MeasuredRow, ...]:
    """The measurements that the package ships.

    Returns:
        the rows, read once a process
    """
    return read_measured_rows(files("service.calibration").joinpath("published/memory.csv").read_bytes())
