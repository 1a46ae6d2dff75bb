"""The flat form of a question: each field by its own name, in a query string, a cell or on a command line."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from dataclasses import field as dataclass_field
from decimal import Decimal
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from service.answers.names import component
from service.errors import MOST_PROBLEMS, Problem, Refused, did_you_mean, nearest, quoted
from service.validation.forms import ReadElsewhere, described_as
from service.validation.other_names import part_of, plain, short_names
from service.validation.problems import unknown_field
from service.validation.quantities import is_meant, value_of
from service.validation.question_parts import PARTS, QUESTION_SPECS
from service.validation.reading import schema_of

Form = Literal["integer", "integers", "number", "numbers", "truth", "text"]
DecimalMark = Literal[".", ","]
Value = int | float | bool | str

LIST_MARK = ";"

MEMBER_MARK = ":"
"""Separates the numbers of a small object, as in 512:300."""

MOST_PARAMETERS = 4_096
"""Parameters of one query; a question has some hundred, and a list of 2,048 layers may be given as repeated keys."""

TOO_MANY = Problem(
    field="",
    code="too_many",
    message=f"more than {MOST_PARAMETERS} parameters are given",
    fix=f"give at most {MOST_PARAMETERS}, each field once",
)

NUMBER = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+ -]?[0-9]{1,4})?")
"""A decimal number; a plus sign after the e may be a space, which is what `+` means in a query string."""

LONGEST_NUMBER = 40
"""Characters of one number; the longest double has 24."""
LARGEST_EXPONENT = 40
"""Powers of ten in a whole number, far beyond the bounds of any field."""

TRUTHS = {"true": True, "1": True, "false": False, "0": False}
"""Spellings of booleans: 1 and 0 because a spreadsheet writes TRUE in the language of its user."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Description of a form, and the error code of other texts."""

    words: str
    code: str
    example: str = ""


EXPECTED: Mapping[Form, Expected] = {
    "integer": Expected("a whole number", "not_a_whole_number", ", e.g. 8 or 2e6"),
    "integers": Expected("whole numbers with : between them", "not_whole_numbers", ", e.g. 512:300"),
    "number": Expected("a number", "not_a_number", ", e.g. 2.5 or 15e12"),
    "numbers": Expected("numbers with : between them", "not_numbers", ", e.g. 9.8:10.3"),
    "truth": Expected("true or false", "not_true_or_false"),
    "text": Expected("a name", "not_text"),
}


def read_value(name: str, form: Form, text: str, mark: DecimalMark) -> Value:
    expected = EXPECTED[form]
    if not text:
        raise Refused(Problem(name, "empty", f"{name} is empty", f"give {expected.words}, or leave {name} out"))
    if form == "text":
        return text
    value = TRUTHS.get(text.lower()) if form == "truth" else _number(name, form, text, mark)
    if value is None:
        several = "; for several values ask /v1/cell/table.csv" if LIST_MARK in text else ""
        fix = f"give {expected.words}{expected.example}{several}"
        raise Refused(Problem(name, expected.code, f"{name} is {quoted(text)}, not {expected.words}", fix))
    return value


def read_members(
    name: str, form: Form, members: tuple[str, ...], text: str, mark: DecimalMark, *, required: int
) -> dict[str, int | float]:
    """The small object that a text of the flat form spells: a number for each of its fields."""
    parts = text.split(MEMBER_MARK)
    given = {
        member: part
        for index, (member, part) in enumerate(zip(members, parts, strict=False))
        if part or index < required
    }
    each_form: Form = "integer" if form == "integers" else "number"
    found = {member: _number(name, each_form, part, mark) for member, part in given.items()}
    numbers = {member: number for member, number in found.items() if number is not None}
    if required <= len(parts) <= len(members) and len(numbers) == len(given):
        return numbers
    expected = EXPECTED[form]
    each = f"one for each of {', '.join(members[:required])}"
    others = f", and for {', '.join(members[required:])} where given" if members[required:] else ""
    message = f"a value of {name} is {quoted(text)}, not {expected.words}, {each}{others}"
    raise Refused(Problem(name, expected.code, message, f"give {MEMBER_MARK.join(members)}{expected.example}"))


def _number(name: str, form: Form, text: str, mark: DecimalMark) -> int | float | None:
    other = "," if mark == "." else "."
    if other in text and mark == ",":
        message = f"{name} is {quoted(text)} with a point, but dec=, says that a comma stands before the decimals"
        raise Refused(Problem(name, "decimal_point", message, "write the number with a comma, or leave dec out"))
    if other in text:
        message = f"{name} is {quoted(text)}; a comma between thousands would make it another number, so it is refused"
        fix = "write decimals with a point and lists with ; between the values"
        fix += " (under /v1/cell, dec=, takes decimal commas)"
        raise Refused(Problem(name, "decimal_comma", message, fix))
    plain = text.replace(",", ".")
    if len(plain) > LONGEST_NUMBER or not NUMBER.fullmatch(plain):
        return None
    plain = plain.replace(" ", "+")
    if form == "integer":
        whole = Decimal(plain)
        is_whole = whole.adjusted() <= LARGEST_EXPONENT and whole == whole.to_integral_value()
        return int(whole) if is_whole else None
    number = float(plain)
    return number if isfinite(number) else None


PRESETS = {
    "model": "Name of the model; model fields given beside it change the preset.",
    "cluster": "Name of a cluster preset; cluster fields given beside it change the preset.",
}

ALIASES = short_names()
"""Fields by their short names; longer names of other tools are understood as in JSON."""

FORMS: Mapping[type, Form] = {int: "integer", float: "number", bool: "truth", str: "text"}

JSON_TYPES: Mapping[Form, str] = {
    "integer": "integer", "integers": "string", "numbers": "string", "number": "number", "truth": "boolean",
    "text": "string",
}  # fmt: skip
"""JSON type of a parameter by how it is spelled."""

NAMING = {"preset", "granularity", "name"}
"""Fields that name the object to which they belong."""

NODES_WITHOUT_CLUSTER = Problem(
    field="nodes",
    code="nodes_without_cluster",
    message="nodes counts the nodes of a cluster, and neither a cluster nor a GPU is named",
    fix="give cluster, or gpu beside nodes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatField:
    name: str
    path: tuple[str, ...]
    """Where its value goes in the nested body."""
    spec: type | None = None
    """The dataclass that has the field; None for the name of a preset."""
    field: str = ""
    form: Form = "text"
    """How one value is spelled."""
    choices: tuple[str | int, ...] = ()
    """The values it takes; empty where they are not a closed list."""
    is_list: bool = False
    """Takes several values: the key repeated, or semicolons between them."""
    members: tuple[str, ...] = ()
    """Fields of the small dataclass that one value spells, colons between them; empty where a value is a plain one."""
    required: int = 0
    """Number of leading members that a value must give."""

    @property
    def own_name(self) -> str:
        """The name of the field itself, also where it names the object to which it belongs."""
        return self.path[-2] if self.path[-1] in NAMING else self.path[-1]

    def meant(self, text: str) -> Any:
        """What a text means for it by quantities and other spellings; None where it means nothing."""
        return value_of(self.own_name, self.form, text, self.choices)

    @property
    def meaning(self) -> str:
        """Its description, worked out on demand: pydantic takes a third of a second to read those of all fields."""
        if self.spec is None:
            return PRESETS[self.name]
        meaning = " ".join(schema_of(self.spec)["properties"][self.field].get("description", "").split())
        if not self.members:
            return meaning
        others = (
            f" All after {self.members[self.required - 1]} may be empty." if self.required < len(self.members) else ""
        )
        return f"{meaning} Spelled {':'.join(self.members)}.{others}"


EXAMPLE: Mapping[str, Any] = {
    "model": "llama-3.1-8b",
    "sequence_length": 8192,
    "tensor": 2,
    "gpu": "h100-sxm5-80gb",
    "gpus": 8,
}


@dataclass(frozen=True)
class FlatForm(ReadElsewhere):
    """Every parameter of the flat form as one object, described when the contract is written."""

    name: str
    description: str
    several: tuple[str, ...] = ()
    """Parts of a question whose fields take several values."""
    wildcard: Mapping[str, str] = dataclass_field(default_factory=dict, hash=False)
    """Further value of a field with choices, by its name."""
    beside: type | None = None
    """Dataclass of the parameters beside the question."""
    example: Mapping[str, Any] = dataclass_field(default_factory=lambda: EXAMPLE, hash=False)
    """Parameters that a route answers."""

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        properties = {name: self._schema(field) for name, field in flat_fields().items()}
        if self.beside is not None:
            properties |= handler.resolve_ref_schema(described_as(self.beside, handler))["properties"]
        whole = {"type": "object", "description": self.description, "properties": properties}
        return component(self.name, whole | {"examples": [dict(self.example)]})

    def _schema(self, field: FlatField) -> dict[str, Any]:
        choices = [*field.choices, *([self.wildcard[field.name]] if field.name in self.wildcard else [])]
        one = {"type": JSON_TYPES[field.form]} | ({"enum": choices} if field.choices else {})
        is_list = field.is_list or field.path[0] in self.several
        return {"description": field.meaning, **({"type": "array", "items": one} if is_list else one)}


FlatQuestion = Annotated[Any, FlatForm("FlatQuestion", "A question in its flat form: each field by its own name.")]


def body_of_flat(
    parameters: Sequence[tuple[str, str]],
    *,
    decimal_mark: DecimalMark = ".",
    beside: Collection[str] = (),
    has_cluster: bool = False,
) -> dict[str, Any]:
    """The nested body of a flat one; `has_cluster` where a question that it changes names the cluster of its nodes."""
    texts: dict[str, list[str]] = {}
    unknown: list[str] = []
    others: list[tuple[str, str, str]] = []
    for name, text in parameters[:MOST_PARAMETERS]:
        known = ALIASES.get(name, name)
        known = known if known in flat_fields() else plain(name)
        if known in flat_fields():
            texts.setdefault(known, []).append(text)
        elif (part := part_of(name)) is not None:
            others.append((part, name, text))
        else:
            unknown.append(name)
    problems = [unknown_field("", name, {*flat_fields(), *ALIASES, *beside}) for name in unknown[:MOST_PROBLEMS]]
    if len(parameters) > MOST_PARAMETERS:
        problems.append(TOO_MANY)
    body: dict[str, Any] = {"recipe": {}}
    for name, given in texts.items():
        field = flat_fields()[name]
        try:
            _put(body, field.path, field_value(field, given, decimal_mark))
        except Refused as refused:
            problems.extend(refused.problems)
    for part, name, text in others:
        _put(body, (part, name), text)
    if "nodes" in texts and not has_cluster and not {"cluster", "gpu"} & texts.keys():
        problems.append(NODES_WITHOUT_CLUSTER)
    if problems:
        raise Refused(*problems)
    return {part: _shortest(value) for part, value in body.items()}


@cache
def flat_fields() -> Mapping[str, FlatField]:
    presets = [FlatField(name=part, path=(part, "preset")) for part in PRESETS]
    every = presets + [field for part, kind in QUESTION_SPECS for field in spec_fields(kind, (part,))]
    named: dict[str, FlatField] = {}
    for field in every:
        named.setdefault(field.name, field)  # terms of a price are given the same way to a list and to a rate card
    return named


def flat_name(path: str) -> str:
    """The flat parameter of a field of the nested body."""
    steps = tuple(step for step in path.split(".") if not step.isdigit())
    return next((field.name for field in flat_fields().values() if field.path == steps), path)


def spec_fields(kind: type, path: tuple[str, ...]) -> list[FlatField]:
    """Flat fields of a dataclass that stands at a path of the body."""
    hints = get_type_hints(kind)
    results: list[FlatField] = []
    for field in fields(kind):
        plain, inner = _alternatives(hints[field.name])
        field_path = (*path, field.name)
        if plain is None and inner is not None:
            results.extend(_prefixed(field.name, spec_fields(inner, field_path)))
            continue
        flat_field = replace(_field(field.name, field_path, plain), spec=kind, field=field.name)
        if inner is not None:  # a name or an object: the name is the object's first field
            first, *others = spec_fields(inner, field_path)
            results.extend([replace(flat_field, path=first.path), *_prefixed(field.name, others)])
        else:
            results.append(flat_field)
    return results


def _prefixed(name: str, inner: list[FlatField]) -> list[FlatField]:
    """Fields of a dataclass within another one, by the outer field's name and their own."""
    return [replace(field, name=f"{name}_{field.name}") for field in inner]


def _alternatives(hint: Any) -> tuple[Any, type | None]:
    """The plain type that a field takes, None where it takes none, and the dataclass that it takes instead."""
    is_union = get_origin(hint) in {Union, UnionType}
    options = [option for option in get_args(hint) if option is not NoneType] if is_union else [hint]
    inner = next((option for option in options if isinstance(option, type) and is_dataclass(option)), None)
    return next((option for option in options if option is not inner), None), inner


def _field(name: str, path: tuple[str, ...], hint: Any) -> FlatField:
    is_list = get_origin(hint) is tuple
    value = get_args(hint)[0] if is_list else hint
    if is_dataclass(value):
        members, hints = tuple(member.name for member in fields(value)), get_type_hints(value)
        required = sum(member.default is MISSING for member in fields(value))
        form: Form = "numbers" if all(hints[member] is float for member in members) else "integers"
        return FlatField(name=name, path=path, form=form, is_list=is_list, members=members, required=required)
    choices = get_args(value) if get_origin(value) is Literal else ()
    form = FORMS[type(choices[0]) if choices else value]
    return FlatField(name=name, path=path, form=form, choices=choices, is_list=is_list)


def field_value(field: FlatField, texts: Sequence[str], mark: DecimalMark = ".") -> Any:
    """The value that the texts of a field spell."""
    if not field.is_list and len(texts) > 1:
        message = f"{field.name} is given {len(texts)} times, and takes one value"
        raise Refused(Problem(field=field.name, code="repeated", message=message, fix="give it once"))
    values = [
        read_members(field.name, field.form, field.members, item, mark, required=field.required)
        if field.members
        else _read(field, item, mark)
        for text in texts
        for item in (text.split(LIST_MARK) if field.is_list else [text])
    ]
    return values if field.is_list else values[0]


def _read(field: FlatField, text: str, mark: DecimalMark) -> Value:
    """The value that a text spells; a quantity stays a text, which is read as in JSON."""
    try:
        return read_value(field.name, field.form, text, mark)
    except Refused:
        if mark == "." and is_meant(field.own_name, field.form, text, field.choices):
            return text
        raise


def _put(body: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    *outer, last = path
    for step in outer:
        body = body.setdefault(step, {})
    body[last] = value


def _shortest(value: Any) -> Any:
    """A plain name in place of an object with that field only."""
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and (name := next(iter(value))) in NAMING:
        return value[name]
    return {name: _shortest(item) for name, item in value.items()}


JSON_EXAMPLE = re.compile(r'(?<=e\.g\. )(?:\{.*\}|"[^"]*")')


@dataclass(frozen=True, slots=True)
class ErrorStyle:
    """Notation of fields with values."""

    between: str
    """Separator of two fields."""
    before: str
    assigns: str
    """Separator of a name and its value."""
    word_mark: str

    def name(self, field: str) -> str:
        return self.before + field.replace("_", self.word_mark)

    def fields(self, values: Mapping[str, Any]) -> str:
        return self.between.join(f"{self.name(field)}{self.assigns}{value}" for field, value in values.items())


QUERY = ErrorStyle(between="&", before="", assigns="=", word_mark="_")
COMMAND_LINE = ErrorStyle(between=" ", before="--", assigns=" ", word_mark="-")


def rephrased(problem: Problem, style: ErrorStyle, beside: Collection[str] = ()) -> Problem:
    """A problem for a caller who did not send JSON."""
    field = flat_name(problem.field)
    named = style.name(field) if field in flat_fields() or field in beside else field
    return replace(
        problem, field=named, fix=JSON_EXAMPLE.sub(lambda shown: _shown(shown[0], field, style), problem.fix)
    )


def _shown(text: str, field: str, style: ErrorStyle) -> str:
    value = json.loads(text)
    return style.fields(value if isinstance(value, dict) else {field: value})


NOTHING: Mapping[str, Any] = {}

NAMED_BY: Mapping[str, str] = {"model": "preset", "cluster": "preset"}
"""Field that names a whole part; for nested parts it is their first field."""


@cache
def variable_fields() -> Mapping[str, tuple[str, ...]]:
    """Every field that can be varied, including whole parts."""
    paths = [field.path for field in flat_fields().values()]
    every = {path[:length] for path in paths for length in range(1, len(path) + 1)}
    return {".".join(path): path for path in sorted(every) if path[-1] != "preset"}


def unknown_variable(name: str, place: str) -> Problem:
    known, flat = variable_fields(), flat_fields()
    last = name.rpartition(".")[2].lower()
    own = flat.get(ALIASES.get(last, last))
    likely = [".".join(own.path)] if own is not None and own.path[-1] != "preset" else nearest(name, known)
    near = likely or [".".join(flat[one].path) for one in nearest(last, flat)]
    fix = did_you_mean(near) or f"give the dotted name of a field, e.g. recipe.micro_batch; parts: {', '.join(PARTS)}"
    message = f"{place} names a field {quoted(name)} that does not exist; it would change nothing, so it is refused"
    return Problem(field=place, code="unknown_field", message=message, fix=fix)


def with_value(
    body: Mapping[str, Any], path: Sequence[str], value: Any, filled: Mapping[str, Any] = NOTHING
) -> dict[str, Any]:
    """A question's body with one field replaced; a name in place of an object becomes that object.

    >>> with_value({"model": "a"}, ("model", "num_hidden_layers"), 2)["model"]
    {'preset': 'a', 'num_hidden_layers': 2}
    >>> with_value({}, ("recipe", "stack", "cuda_graphs"), True, {"recipe": {"stack": "fsdp1"}})["recipe"]
    {'stack': {'name': 'fsdp1', 'cuda_graphs': True}}
    """
    step, *rest = path
    if not rest:
        others = {name: item for name, item in body.items() if name != step}
        return others if value is None else {**others, step: value}
    default = filled.get(step)
    whole = _as_object(body.get(step), default, step)
    return {**body, step: with_value(whole, rest, value, default if isinstance(default, Mapping) else NOTHING)}


def value_at(whole: Mapping[str, Any], path: Sequence[str]) -> Any:
    """The value of a field in the JSON of a question."""
    value: Any = whole
    for step in path:
        if not isinstance(value, Mapping):
            return value if step in NAMING and isinstance(value, str) else None
        value = value.get(step)
    return value


def _as_object(part: Any, default: Any, step: str) -> Mapping[str, Any]:
    """A part as an object; for an absent one, the name of its default."""
    if isinstance(part, Mapping):
        return part
    if part is not None:
        return {_naming(step): part}
    if isinstance(default, str):
        return {_naming(step): default}
    return {name: default[name] for name in NAMING if name in default} if isinstance(default, Mapping) else {}


def _naming(step: str) -> str:
    """The field that a plain name sets."""
    if step in NAMED_BY:
        return NAMED_BY[step]
    inner = (path[-1] for path in variable_fields().values() if len(path) > 2 and path[-2] == step)
    return next((name for name in inner if name in NAMING), "name")
