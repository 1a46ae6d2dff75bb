"""What does a row of a sweep of estimates answer? The same as an estimate of its question, without the sentences.

Rows that differ in their price alone share everything but their money, for a configuration is looked up once for them.
"""

from dataclasses import replace

from service.errors import Problem, Refused
from service.estimator import running
from service.estimator.question import Question
from service.estimator.resolve import Resolved, configuration_of, run_problems
from service.estimator.running import Running, at_price, running_of
from service.workflows.sweeps.axes import Axes, Combination
from service.workflows.sweeps.rows import Found


class Estimating:
    """Answers the rows of a sweep of estimates.

    Args:
        axes: the lists of the sweep
    """

    def __init__(self, axes: Axes) -> None:
        self._axes = axes
        self._at: Combination | None = None
        """Positions of the row before, its price left out."""
        self._configuration: Resolved | None = None
        self._problems: tuple[Problem, ...] = ()
        """What is wrong with it at any price."""
        self._running: dict[int, Running] = {}
        """Its run, by the place where its price holds."""

    def answer(self, asked: Question, at: Combination) -> Found:
        """What a row answers.

        Args:
            asked: its question
            at: its positions in the lists of the sweep

        Returns:
            the numbers of its estimate

        Raises:
            Refused: the question breaks a rule
        """
        unpriced = at._replace(price=0)
        if unpriced != self._at:
            self._turn_to(replace(asked, price=None))
            self._at = unpriced
        problems = run_problems(asked)
        if self._configuration is None or problems:
            raise Refused(*dict.fromkeys((*self._problems, *problems)))
        place = self._axes.prices[at.price].place
        if place not in self._running:
            self._running[place] = running_of(asked, self._configuration)
        return Found(running.numbers_of(at_price(self._running[place], asked.price)))

    def _turn_to(self, unpriced: Question) -> None:
        """Look up another configuration, or what is wrong with it."""
        self._configuration, self._problems, self._running = None, (), {}
        try:
            self._configuration = configuration_of(unpriced)
        except Refused as refused:
            self._problems = tuple(refused.problems)
