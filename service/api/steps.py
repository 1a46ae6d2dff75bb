"""How is a long search answered without keeping others waiting? They are let through between its steps."""

from asyncio import sleep

from service.planner.steps import Outcome, Steps


async def finished(steps: Steps[Outcome]) -> Outcome:
    """What a search leads to; between its steps others are answered.

    Args:
        steps: the search

    Returns:
        its result
    """
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: Outcome = done.value
            return found
        await sleep(0)
