"""Typed routes: the signature of a route states its inputs and its answer, and all requests pass the same checks."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from fastapi import Body, Depends, Header, HTTPException, Query, Request, Response
from fastapi._compat import ModelField
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Query as QueryInfo
from fastapi.routing import APIRoute
from pydantic import WithJsonSchema

from service.api.access.authorization import CALLER, SHARE_LINK_CALLER, authorize, is_locked, required_scope
from service.api.compute import compute
from service.api.errors import ApiError, WrongParameter
from service.api.inputs import catalogue_of, choice_of, single_value
from service.api.limits.rate_limits import Quota, RateLimits, count_request, network_of
from service.api.openapi import CSV_BODY, JSON_BODY, MERGE_PATCH, TEXT_BODY, is_public, with_scope
from service.api.request_context import context_of, deprecation_headers
from service.catalogue import Catalogue
from service.errors import MOST_PROBLEMS, Problem, Refused, quoted
from service.store.keys import ApiKey, Caller
from service.text_bounds import is_text
from service.validation.flat import read_value
from service.validation.forms import DescribedAs
from service.validation.json_text import NOT_TEXT, parse_object, parse_unchecked_object
from service.validation.problems import inside

LONG_BYTES = 32 * 1024
"""Longest body that this process parses itself [byte]."""
MOST_MARKS = 1_000
"""Most words and marks of a launcher's text that this process parses itself; a file of 300 settings has as many."""

MARKS = (b",", b"=", b":", b".", b"[", b"{", b"#", b"\n", b"\\n")

DEADLINE_SECONDS = 60.0
"""Time limit of parsing a body in another process. Source: a choice; with free cores the longest takes about 1 s."""

BODY_DEADLINE = Problem(
    field="",
    code="took_too_long",
    message=f"the body takes longer to read than {DEADLINE_SECONDS:.0f} s",
    fix="send less at once, or the part of the file that says how to train",
)


def is_long(content: bytes) -> bool:
    """Whether to read a body in another process because of its length."""
    return len(content) > LONG_BYTES


def is_long_launcher_text(content: bytes) -> bool:
    """Whether to read a launcher's text in another process because of its length or its number of settings."""
    if is_long(content):
        return True
    return len(content) > MOST_MARKS and sum(map(content.count, MARKS)) + len(content.split()) > MOST_MARKS


async def read_in_process(request: Request, function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a reader of a body in another process."""
    try:
        return await compute(request, function, *arguments, deadline_seconds=DEADLINE_SECONDS)
    except Refused as error:
        if error.problems[0].code == BODY_DEADLINE.code:
            raise Refused(BODY_DEADLINE) from None
        raise


PARAMETERS = {
    JSON_BODY: {"", "charset=utf-8"},
    CSV_BODY: {"", "charset=utf-8", "header=present"},
    TEXT_BODY: {"", "charset=utf-8"},
}
"""Accepted parameters of each media type."""

NOT_UTF_8 = "the body is no text in UTF-8, or holds a NUL"


def text_of(content: bytes) -> str:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if not is_text(text):
        raise Refused(Problem(field="", code=NOT_TEXT.code, message=NOT_UTF_8, fix="send the file as it is, in UTF-8"))
    return text


def refuse_media_type(request: Request, media_types: Sequence[str]) -> str:
    """The media type of a body. Refuse other media types, other charsets and content encodings."""
    given_type, _, parameters = request.headers.get("content-type", "").partition(";")
    media_type = given_type.strip().lower()
    given = {parameter.strip().lower().replace('"', "") for parameter in parameters.split(";")}
    if media_type not in media_types or not given <= PARAMETERS[media_types[0]]:
        named = " or ".join(media_types)
        raise ApiError("unsupported_media_type", f"send the body as content-type: {named}, in UTF-8")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError("unsupported_media_type", "send the body without content-encoding")
    return media_type


Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class BodyForm:
    """Accepted media types of a route's body, and their parser."""

    media_types: tuple[str, ...] = (JSON_BODY,)
    parse: Callable[[bytes], Any] | None = parse_object
    is_optional: bool = False

    async def read(self, request: Request) -> Any:
        """Read the body of a request; a long one in another process."""
        content = await request.body()
        if self.is_optional and not content:
            return {}
        media_type = refuse_media_type(request, self.media_types)
        if self.parse is None or media_type == TEXT_BODY:
            return content
        return await read_in_process(request, self.parse, content) if is_long(content) else self.parse(content)


class JsonBody(Mapping[str, Any], Generic[Kind]):
    """The JSON object in a body, which a type describes: `body: JsonBody[PlanRequest]`."""

    form: ClassVar = BodyForm()

    def __class_getitem__(cls, kind: Any) -> Any:
        """The annotation that FastAPI reads; a subclass stays generic."""
        if isinstance(kind, TypeVar):
            return super().__class_getitem__(kind)  # type: ignore[misc]  # typing's method
        empty = dict if cls.form.is_optional else None
        return Annotated[
            Any, DescribedAs(kind), cls.form, Body(media_type=cls.form.media_types[0], default_factory=empty)
        ]


class LongJsonBody(JsonBody[Kind]):
    """A JSON object of up to thousands of parts. The readers of the parts check their values."""

    form = BodyForm(parse=parse_unchecked_object)


class OptionalJsonBody(JsonBody[Kind]):
    """The JSON object in a body; empty without a body."""

    form = BodyForm(is_optional=True)


class PatchBody(JsonBody[Kind]):
    """An RFC 7396 merge patch."""

    form = BodyForm((JSON_BODY, MERGE_PATCH))


class RawJsonBody(bytes, Generic[Kind]):
    """The text of a JSON body, for routes that choose where to parse it."""

    def __class_getitem__(cls, kind: Any) -> Any:
        return Annotated[Any, DescribedAs(kind), BodyForm(parse=None), Body(default_factory=bytes)]


def text_or_json(kind: Any) -> Callable[..., Coroutine[Any, Any, str | Mapping[str, Any]]]:
    """A dependency that gives the text or the JSON object of a body; a type describes the object."""
    described = Annotated[Any, DescribedAs(kind), BodyForm((JSON_BODY, TEXT_BODY)), Body(default_factory=bytes)]

    async def read(body: described) -> str | Mapping[str, Any]:
        value: str | Mapping[str, Any] = text_of(body) if isinstance(body, bytes) else body
        return value

    return read


def answer(kind: Any) -> Any:
    """The JSON of an answer, for `response_model`: described from its type when the contract is written."""
    return Annotated[Any, DescribedAs(kind)]


CsvBody = Annotated[
    Any,
    WithJsonSchema(
        {
            "type": "string",
            "description": "UTF-8 with a header of column names; comma, semicolon or tab between the cells.",
        }
    ),
    BodyForm((CSV_BODY,), parse=None),
    Body(media_type=CSV_BODY, default_factory=bytes),
]


@dataclass(frozen=True, slots=True)
class AnyQuery:
    """Marker of a parameter that stands for the whole query; its schema describes all names that the route reads."""

    names: tuple[str, ...] | None = None
    """Accepted names; None where the reader of the query refuses unknown ones."""


DECLARED = "traincost.declared"
"""Key of the request state that holds the names of the route's declared query parameters."""


class _ParsedRequest(Request):
    """A request whose body was parsed before FastAPI asks for it."""

    parsed: Any = None

    async def json(self) -> Any:
        return self.parsed


def operation_id_of(route: APIRoute) -> str:
    """The id of an operation: the name of its function in camel case."""
    first, *others = route.name.split("_")
    return first + "".join(word.capitalize() for word in others)


class StrictRoute(APIRoute):
    """A route that authenticates before it reads, and refuses parameters and media types that it does not declare."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        if options["include_in_schema"]:
            options["openapi_extra"] = with_scope(options["openapi_extra"], options["methods"] or {"GET"})
            options["description"] = options["description"] or " ".join((endpoint.__doc__ or "").split())
        super().__init__(path, endpoint, **options | {"generate_unique_id_function": operation_id_of})

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler behind the checks."""
        handle = super().get_route_handler()
        fields = [field for field in get_flat_params(self.dependant) if isinstance(field.field_info, QueryInfo)]
        any_queries = [mark for field in fields for mark in field.field_info.metadata if isinstance(mark, AnyQuery)]
        declared = [field.alias for field in fields if not _describes_the_query(field)]
        is_closed = all(mark.names is not None for mark in any_queries)
        known = [*declared, *(name for mark in any_queries for name in mark.names or ())]
        form = self._body_form()

        async def strict(request: Request) -> Response:
            request = _ParsedRequest(request.scope, request.receive)
            await authenticate(request)
            request.scope["state"][DECLARED] = declared
            if is_closed:
                refuse_unknown_parameters(request, known)
            if form is not None:
                request.parsed = await form.read(request)
            return await handle(request)

        return strict

    def _body_form(self) -> BodyForm | None:
        marks = () if self.body_field is None else self.body_field.field_info.metadata
        return next((mark for mark in marks if isinstance(mark, BodyForm)), None)


def _describes_the_query(field: ModelField) -> bool:
    return any(isinstance(mark, AnyQuery) for mark in field.field_info.metadata)


def refuse_unknown_parameters(request: Request, known: Sequence[str]) -> None:
    """Refuse query parameters that the route does not read."""
    if request.query_params.keys() <= {*known}:
        return
    what = f"only {' and '.join(known)}" if known else "no query parameter"
    fix = "put every other field into the body" if request.method == "POST" else "leave the other parameters out"
    unknown = [name for name in request.query_params if name not in known][:MOST_PROBLEMS]
    raise WrongParameter(
        *(
            Problem(
                field=inside("", name),
                code="unknown_parameter",
                message=f"{request.method} takes {what} here; {quoted(name)} would be ignored, so it is refused",
                fix=fix,
            )
            for name in unknown
        )
    )


async def authenticate(request: Request) -> None:
    """Authenticate, authorize and count a request, then read its body, so that no route runs on a broken one."""
    if any("\0" in str(value) for value in request.path_params.values()):
        raise HTTPException(404)  # no name contains NUL, and PostgreSQL refuses it in text
    route, context = request.scope["route"], context_of(request)
    context.route = route.path_format
    context.headers.extend(deprecation_headers(route.unique_id))
    state = request.app.state
    is_open = not is_locked(state.keys, state.tokens)
    if is_open and not is_public(route.openapi_extra):
        state.cross_site_requests.refuse(request.scope)
    scope = required_scope(request)
    if scope is not None and (state.is_public or not is_open):
        await _authorize_counted(request, state.rate_limits)
    else:
        await authorize(request)
    if scope not in (None, "worker") and request.method != "GET":
        await request.body()


async def _authorize_counted(request: Request, limits: RateLimits) -> None:
    """Authorize a request, and count it whether or not its caller is authorized."""
    try:
        key = await authorize(request)
    except ApiError:
        await count_request(request, _quota_of(request, limits, SHARE_LINK_CALLER, None))
        raise
    await count_request(request, _quota_of(request, limits, request.scope["state"].get(CALLER, SHARE_LINK_CALLER), key))


def _quota_of(request: Request, limits: RateLimits, caller: Caller, key: ApiKey | None) -> Quota | None:
    host = request.client.host if request.client else ""
    if required_scope(request) == "worker":
        return limits.of_worker(network_of(host) if caller == SHARE_LINK_CALLER else caller.id, key)
    return limits.of_address(host) if caller == SHARE_LINK_CALLER else limits.of_caller(caller.id, key)


def query(schema: Mapping[str, Any], description: str, name: str | None = None) -> Any:
    """A query parameter that its reader validates: `rev: Annotated[Any, *query(...)] = None`."""
    return WithJsonSchema(dict(schema)), Query(description=description, alias=name)


def query_choice(name: str, choices: Sequence[str], description: str) -> Any:
    """A dependency that gives the text of a query parameter with choices; the first choice is the default."""
    schema = {"type": "string", "enum": list(choices), "default": choices[0]}
    described = Annotated[Any, *query(schema, description, name)]

    async def read(request: Request, text: described = None) -> str:  # noqa: ARG001 - declares the parameter
        return choice_of(request, name, choices)

    return Depends(read)


def query_text(name: str, schema: Mapping[str, Any], description: str) -> Any:
    """A dependency that gives the text of a query parameter; None where it is absent."""
    described = Annotated[Any, *query(schema, description, name)]

    async def read(request: Request, text: described = None) -> str | None:  # noqa: ARG001 - declares the parameter
        return single_value(request, name)

    return Depends(read)


def header(name: str, schema: Mapping[str, Any], description: str) -> Any:
    """A header that its reader validates: `last: Annotated[Any, *header(...)] = None`."""
    return WithJsonSchema(dict(schema)), Header(alias=name, description=description)


RevisionQuery = Annotated[
    Any,
    *query(
        {"type": "string", "pattern": "^[0-9a-f]{12}$"},
        "Answer under an earlier catalogue: versions.catalogue of an answer, or one that /v1/catalogue/revisions "
        "lists. The one that holds now where absent.",
    ),
]
ExplainQuery = Annotated[
    Any,
    *query(
        {"type": "boolean", "default": False}, "Add the equation, the inputs and the source of each headline number."
    ),
]


async def _catalogue(request: Request, rev: RevisionQuery = None) -> Catalogue:  # noqa: ARG001 - declares the parameter
    return await catalogue_of(request)


ROW_REVISION = "revision"
LARGEST_REVISION = (1 << 31) - 1
"""Largest revision that the database can store."""

RowRevisionText = Annotated[
    str | None,
    query_text(
        ROW_REVISION,
        {"type": "integer", "minimum": 1},
        "An older version of the row, by its revision; the one that holds where absent.",
    ),
]


async def _row_revision(text: RowRevisionText) -> int | None:
    number = None if text is None else read_value(ROW_REVISION, "integer", text, ".")
    if number is None or (isinstance(number, int) and 1 <= number <= LARGEST_REVISION):
        return number
    message = f"{ROW_REVISION} is not from 1 to {LARGEST_REVISION}"
    raise Refused(Problem(field=ROW_REVISION, code="out_of_range", message=message, fix="give the revision of a row"))


RowRevisionDep = Annotated[int | None, Depends(_row_revision)]
"""Route argument: the requested revision of a row; None for the current one."""
CatalogueDep = Annotated[Catalogue, Depends(_catalogue)]
"""Route argument: the caller's current catalogue, or that of the revision in `rev`."""

Parameters = list[tuple[str, str]]
"""Names and texts of query parameters, in their order."""


def whole_query(kind: Any, *names: str, is_described: bool = True) -> Callable[..., Coroutine[Any, Any, Parameters]]:
    """A dependency that gives the query parameters the route does not declare, of these names only where given."""
    described = Annotated[Any, DescribedAs(kind), AnyQuery(names or None), Query(include_in_schema=is_described)]

    async def parameters(request: Request, query: described = None) -> Parameters:  # noqa: ARG001 - describes the query
        declared = request.scope["state"][DECLARED]
        return [(name, text) for name, text in request.query_params.multi_items() if name not in declared]

    return parameters
