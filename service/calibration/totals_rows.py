"""Which whole runs does the package ship, and which of them are one main run? Decided before any was scored."""

from functools import cache

from service.calibration.measured_rows import MeasuredRow
from service.calibration.tables import shipped_table

COLUMNS = (
    "id", "model", "n_params_b", "tokens_t", "gpu", "n_gpus", "gpu_hours", "wall_days", "stage", "precision",
    "mfu_convention", "seq_len", "batch_tokens", "tp", "pp", "cp", "ep", "dp", "value_kind", "quality", "verified",
    "source", "notes", "describes_main_run", "reason",
)  # fmt: skip
"""What a row says; the last two were decided from the others alone, before anything was predicted."""


@cache
def shipped_totals() -> tuple[MeasuredRow, ...]:
    """The whole runs that the package ships, each with its source.

    Returns:
        the rows, read once a process
    """
    return tuple(
        MeasuredRow(number, {name: cell for name, cell in row.items() if cell})
        for number, row in enumerate(shipped_table("totals"), start=2)
    )


def describes_main_run(row: MeasuredRow) -> bool:
    """Whether a row's GPU-hours are those of one pre-training run, by what its own text says.

    Args:
        row: the row

    Returns:
        as its column says
    """
    return row.text("describes_main_run") == "yes"
