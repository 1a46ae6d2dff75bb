"""Inputs of routes beside the request body: catalogue, database, common query parameters and address."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, cast

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from service.api.access.authorization import caller_of
from service.api.errors import WrongParameter
from service.catalogue import Catalogue
from service.errors import Problem, Unreachable, quoted
from service.estimator.other_tools.comparison import TOOLS
from service.estimator.question import ToolName
from service.store import Engine
from service.store.history import History

EXPLAIN = "explain"
REV = "rev"
METHOD = "method"
BOOLEANS = {"true": True, "false": False}


def is_explained(request: Request) -> bool:
    """Whether the request asks for explanations."""
    values = request.query_params.getlist(EXPLAIN)
    if len(values) > 1 or any(value not in BOOLEANS for value in values):
        message = "explain must be true or false, given once; it adds equations to the answer"
        fix = "use explain=true once, or leave it out"
        raise WrongParameter(Problem(field=EXPLAIN, code="not_true_or_false", message=message, fix=fix))
    return any(BOOLEANS[value] for value in values)


def method_of(request: Request) -> ToolName | None:
    if single_value(request, METHOD) is None:
        return None
    name = choice_of(request, METHOD, list(TOOLS))
    if is_explained(request):
        message = "explain adds the equations of our own estimate, and method returns those of another tool"
        fix = f"leave {EXPLAIN} or {METHOD} out"
        raise WrongParameter(Problem(field=EXPLAIN, code="not_with_method", message=message, fix=fix))
    return cast(ToolName, name)


def single_value(request: Request, name: str) -> str | None:
    """The value of a parameter that may be given once; None if it is absent."""
    given = request.query_params.getlist(name)
    if len(given) > 1:
        message = f"{name} is given more than once"
        raise WrongParameter(Problem(field=name, code="repeated", message=message, fix="give it once"))
    if given and not (given[0] and given[0].isprintable()):
        message = f"{name} is empty or contains an invisible character"
        raise WrongParameter(Problem(field=name, code="not_text", message=message, fix="give a name, or leave it out"))
    return given[0] if given else None


def choice_of(request: Request, name: str, choices: Sequence[str]) -> str:
    """The value of a parameter with a list of choices; the first choice if it is absent."""
    return chosen(name, single_value(request, name), choices)


def chosen(name: str, given: str | None, choices: Sequence[str]) -> str:
    """The choice that a parameter names; the first one if it is absent."""
    if given is None:
        return choices[0]
    if given not in choices:
        message = f"{name} is {quoted(given)}, which is none of its choices"
        fix = f"use {' or '.join(choices)}, or leave it out"
        raise WrongParameter(Problem(field=name, code="not_a_choice", message=message, fix=fix))
    return given


DOCUMENTED = "localhost:8000"
"""Host and port in the shipped files, replaced by those of the request."""
HOST = re.compile(r"[A-Za-z0-9.\-]+(:\d+)?|\[[0-9A-Fa-f:]+\](:\d+)?")


def address_of(request: Request) -> str:
    """The base URL under which a request reached the service."""
    if not HOST.fullmatch(request.url.netloc):
        message = "the Host header of the request is not a host name"
        raise WrongParameter(Problem(field="", code="not_a_host", message=message, fix="use a host name or IP address"))
    return str(request.base_url).rstrip("/")


def with_address(text: str, request: Request) -> str:
    """A shipped file with the address of the service as the client reached it."""
    address = address_of(request)
    return text.replace(f"http://{DOCUMENTED}", address).replace(DOCUMENTED, address.partition("://")[2])


async def catalogue_of(request: Request) -> Catalogue:
    """The shared rows of the catalogue and the caller's own, at the revision that the request names."""
    revision, caller = single_value(request, REV), caller_of(request)
    history: History = request.app.state.history
    if revision is None:
        view = history.snapshot.cached_view(caller.owner)
        return view.viewed_by(caller.owner) if view else await run_in_threadpool(history.view, caller.owner)
    cached = history.cached(revision, caller.owner)
    return cached if cached is not None else await run_in_threadpool(catalogue_at(request), revision)


def view_of(request: Request) -> Catalogue:
    """The caller's current catalogue, for synchronous routes."""
    history: History = request.app.state.history
    return history.view(caller_of(request).owner)


def catalogue_at(request: Request) -> Callable[[str], Catalogue]:
    """A function that returns the catalogue of a revision, as the caller may see it."""
    history, caller = request.app.state.history, caller_of(request)
    return partial(history.at, owner=caller.owner, of_all=caller.sees_all)


NO_DATABASE = "the service runs without a database"


def database_of(request: Request) -> Engine:
    engine: Engine | None = request.app.state.engine
    if engine is None:
        raise Unreachable(NO_DATABASE)
    return engine


Database = Annotated[Engine, Depends(database_of)]
