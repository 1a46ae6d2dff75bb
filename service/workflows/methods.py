"""What would another tool say of this question, and why does it differ from our answer?"""

from dataclasses import fields

from service.answers.estimates import MethodAnswer
from service.catalogue import Catalogue
from service.estimator import estimate_memory
from service.estimator.methods.compare import compare
from service.estimator.names import ToolName
from service.workflows.estimates import grounds_of
from service.workflows.questions import Asked
from service.workflows.wire import refuse_infinite


def answer_by(method: ToolName, asked: Asked, catalogue: Catalogue) -> MethodAnswer:
    """What another tool says of one configuration, beside our own estimate of it.

    Args:
        method: the tool's name
        asked: the question and what reading it assumed
        catalogue: the facts that the question was read with

    Returns:
        the tool's numbers, ours, and the main reason why they differ

    Raises:
        Refused: the estimator's rules refuse the question, or the tool's formula does not read all of it
        NotFinite: its values lead together beyond all bounds
    """
    ours = estimate_memory(asked.question)
    refuse_infinite(ours.memory)
    found = compare(method, ours.resolved, ours.memory)
    return MethodAnswer(
        **{field.name: getattr(found, field.name) for field in fields(found)},
        **grounds_of(ours, asked, catalogue),
    )
