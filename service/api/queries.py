"""Which query parameters does a path take? Those that it names; any other is refused, because it would change nothing.

Paths whose whole query is a question or a filter are judged by the workflow that reads it.
"""

from typing import Any

from fastapi import Depends, Request

from service.api.problems import WrongParameter
from service.errors import Problem

EXPLAIN = "explain"
REVISION = "revision"
LARGEST_REVISION = (1 << 31) - 1
"""What the database can number."""
TRUTH = {"true": True, "false": False}


def takes_only(*names: str) -> Any:
    """The dependency of a route that refuses every query parameter but the named ones.

    Args:
        names: the parameters that the route reads

    Returns:
        what stands among the dependencies of the route or of its router
    """
    what = f"only {' and '.join(names)}" if names else "no query parameter"

    async def refuse_others(request: Request) -> None:
        if request.query_params.keys() <= {*names}:
            return
        message = f"{request.method} takes {what} here; any other parameter would be ignored, so it is refused"
        fix = "put every other field into the body" if request.method == "POST" else "leave the other parameters out"
        raise WrongParameter(Problem(field="", code="unknown_parameter", message=message, fix=fix))

    return Depends(refuse_others)


def is_explained(request: Request) -> bool:
    """Whether the caller asks for explanations.

    Args:
        request: the request

    Returns:
        true for explain=true

    Raises:
        WrongParameter: explain is something else than true or false, or is given twice
    """
    asked = request.query_params.getlist(EXPLAIN)
    if len(asked) > 1 or any(value not in TRUTH for value in asked):
        message = "explain is neither true nor false; it decides whether equations come with the answer"
        fix = "say explain=true, once, or leave it out"
        raise WrongParameter(Problem(field=EXPLAIN, code="not_true_or_false", message=message, fix=fix))
    return any(TRUTH[value] for value in asked)


def asked_revision(request: Request) -> int | None:
    """Which revision of a row the caller asks for.

    Args:
        request: the request

    Returns:
        its number; None for the newest

    Raises:
        WrongParameter: revision is no number of a revision, or is given twice
    """
    asked = request.query_params.getlist(REVISION)
    if not asked:
        return None
    number = int(asked[0]) if asked[0].isascii() and asked[0].isdigit() and len(asked[0]) <= 10 else 0
    if len(asked) > 1 or not 1 <= number <= LARGEST_REVISION:
        message = f"revision is not one whole number from 1 to {LARGEST_REVISION}, as revisions are counted"
        fix = "give the number of one revision, or leave it out for the newest"
        raise WrongParameter(Problem(field=REVISION, code="out_of_range", message=message, fix=fix))
    return number
