"""What does the run of a question take, at one price after another? Everything but its money is worked out once."""

from dataclasses import dataclass, replace

from service.estimator.answer import Estimate, Flop
from service.estimator.configuration import Configuration, worked_out
from service.estimator.price import OwnedPrice, Price
from service.estimator.question import Question
from service.estimator.resolve import Resolved, with_run_of
from service.estimator.run import Run, run_of
from service.estimator.run_defaults import with_price
from service.estimator.run_totals import with_total
from service.estimator.totals import totals_of
from service.estimator.verdict import verdict_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A run of a configuration, as far as it is worked out before its money."""

    resolved: Resolved
    """The question, every default filled."""
    known: Configuration
    """What its configuration holds, does and takes."""
    run: Run | None
    """Its stages and steps; None without training_tokens."""
    flop: Flop
    """Operations, the run's too."""


def running_of(question: Question, configuration: Resolved) -> Running:
    """The run of a question.

    Args:
        question: the question as asked
        configuration: its configuration, of `configuration_of`

    Returns:
        what its totals are worked out from
    """
    known = worked_out(configuration)
    resolved = with_run_of(question, configuration)
    run = run_of(resolved, known.loads, known.fullest.filled_fraction)
    return Running(resolved=resolved, known=known, run=run, flop=with_total(known.flop, run))


def at_price(running: Running, price: Price | OwnedPrice | None) -> Running:
    """The same run, paid for otherwise.

    Args:
        running: the run
        price: the price as asked

    Returns:
        the run at that price
    """
    question = with_price(running.resolved.question, price)
    return replace(running, resolved=replace(running.resolved, question=question))


def numbers_of(running: Running) -> Estimate:
    """The answer to a question, without a sentence.

    Args:
        running: its run

    Returns:
        what `estimate` answers, without assumptions and warnings
    """
    known = running.known
    return Estimate(
        resolved=running.resolved.question,
        verdict=verdict_of(known.fullest.memory.oom_probability_fraction),
        parameters=known.parameters,
        memory=known.fullest.memory,
        flop=running.flop,
        step=known.step,
        totals=totals_of(running.resolved, known.step, running.flop, running.run),
        assumptions=(),
        warnings=(),
    )
