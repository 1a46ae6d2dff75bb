"""How is a long search answered without keeping others waiting? They are let through between its steps."""

from asyncio import sleep

from fastapi import Request

from service.api.charges import charge_questions
from service.planner.steps import Outcome, Steps

PASSES = 3
"""Turns of the event loop that others get between two steps: to read a request, to answer it, to send the answer."""


async def finished(request: Request, steps: Steps[Outcome]) -> Outcome:
    """What a search leads to; between its steps others are answered.

    Args:
        request: the request that asks for it, which costs as many as the search asks questions
        steps: the search

    Returns:
        its result

    Raises:
        TooManyRequests: they are too many
    """
    while True:
        try:
            questions = next(steps)
        except StopIteration as done:
            found: Outcome = done.value
            return found
        if questions is not None:
            await charge_questions(request, questions)
        await others_first()


async def others_first() -> None:
    """Let whoever asks something short be answered before the next step."""
    for _ in range(PASSES):
        await sleep(0)
