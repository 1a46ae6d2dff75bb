"""How are figures of what workers measured told in a terminal?"""

from service.workflows.accuracy.measured import MeasuredAccuracy, OwnGroup
from service.workflows.accuracy.table_cells import aligned

HEADER = ("device", "probe", "quantity", "calibration", "counted", "quarantined", "MAPE", "median", "bias")


def measured_lines(found: MeasuredAccuracy) -> list[str]:
    """Figures of what workers measured, as text.

    Args:
        found: the figures

    Returns:
        a line for each thing that ships, and a table of a team's own
    """
    peaks, products = found.counted_peaks, found.products
    said = []
    if peaks.mape_fraction is not None and peaks.largest_fraction is not None:
        said.append(
            f"  live tensors of {len(peaks.rows)} counted steps: {peaks.mape_fraction:.1%} off on average, "
            f"{peaks.largest_fraction:.1%} at most"
        )
    if products is not None:
        said.append(
            f"  {products.products} matrix products on {products.device} ({products.threads} threads): "
            f"{products.held_out_fraction:.1%} off where the other half of the shapes was measured, "
            f"{products.before_fraction:.1%} before; two runs are {products.noise_fraction:.1%} apart"
        )
    return [*said, *(aligned([HEADER, *map(_cells, found.own)]) if found.own else [])]


def _cells(group: OwnGroup) -> tuple[str, ...]:
    errors = (group.mape_fraction, group.median_fraction, group.bias_fraction)
    return (
        group.device,
        group.probe,
        group.quantity,
        group.calibration or "-",
        str(group.measurements),
        str(group.quarantined),
        *("-" if error is None else f"{error:.1%}" for error in errors),
    )
