"""What does a row of a sweep of plans answer? The best plan that POST /v1/plans finds for its question."""

from service.errors import Refused
from service.estimator.question import Question, Recompute
from service.planner.freedom import Freedom
from service.planner.plans import plans_of
from service.workflows.plan_body import freed, missing, sized
from service.workflows.plans import bounds_of, unmet
from service.workflows.sweeps.axes import Combination, Sweep
from service.workflows.sweeps.rows import Found
from service.workflows.wire import to_bytes


class Planning:
    """Answers the rows of a sweep of plans.

    Args:
        sweep: the sweep
    """

    def __init__(self, sweep: Sweep) -> None:
        self._axes = sweep.axes
        self._plan = sweep.plan

    def answer(self, asked: Question, at: Combination) -> Found:
        """What a row answers.

        Args:
            asked: its question
            at: its positions in the lists of the sweep

        Returns:
            its best plan, or why there is none

        Raises:
            Refused: the question cannot be answered under any layout
        """
        limits = self._plan.limits
        problems = missing(asked.recipe, limits, is_priced=asked.price is not None)
        if problems:
            raise Refused(*problems)
        open_fields = {"layout": self._axes.layouts[at.layout].open, "recipe": self._axes.recipes[at.recipe].open}
        allowed, _ = freed(open_fields)
        *_, found = plans_of(sized(asked, limits), Freedom(allowed), self._plan.objective, bounds_of(limits), 1)
        counts = (found.generated, found.scored, found.fitting)
        if not found.best:
            return Found(None, (None, None, *counts), "; ".join(unmet(found)))
        best = found.best[0].answer
        chosen = best.resolved
        return Found(best, (_said(chosen.recipe.recompute), chosen.layout.schedule, *counts))


def _said(recompute: str | Recompute) -> str:
    """Recompute in a cell: its name, or its JSON where it is more than that."""
    return recompute if isinstance(recompute, str) else to_bytes(recompute).decode()
