"""Who answers the rows of a sweep: the estimator, or the search for plans?"""

from service.workflows.sweeps.axes import Sweep
from service.workflows.sweeps.estimating import Estimating
from service.workflows.sweeps.planning import Planning
from service.workflows.sweeps.rows import Rows


def rows_of(sweep: Sweep) -> Rows:
    """The rows of a sweep, none worked out yet.

    Args:
        sweep: the sweep

    Returns:
        its rows
    """
    return Rows(sweep, Planning(sweep) if sweep.kind == "plan" else Estimating(sweep.axes))
