"""Which measurements come with the package? The published rows, so that anyone can repeat the figures."""

from functools import cache
from importlib.resources import files

from service.calibration.columns import FormName
from service.calibration.measured_rows import MeasuredRow, read_measured_rows


@cache
def shipped_rows(form: FormName = "memory") -> tuple[MeasuredRow, ...]:
    """The measurements that the package ships.

    Args:
        form: the kind of table

    Returns:
        the rows, read once a process
    """
    return read_measured_rows(files("service.calibration").joinpath(f"published/{form}.csv").read_bytes())
