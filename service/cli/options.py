"""Options of questions: one for each field, read over the question of a file into the body that the API takes."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from inspect import Parameter, Signature
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperOption
from typer.main import get_command

from service.cli import console
from service.cli.tables import heading
from service.errors import Problem, Refused, TraincostError, refuse

if TYPE_CHECKING:
    from service.validation.flat import FlatField

Texts = Mapping[str, list[str]]
"""Texts of the given options by field."""

OPTIONS, GIVEN = f"{__name__}.options", f"{__name__}.given"
"""Entries of a context: the option names on the command line, and the texts of their fields."""


@dataclass(frozen=True, slots=True)
class Extra:
    """An option of a command beside the fields of a question."""

    name: str
    path: str
    """Dotted path of its value in the body."""
    form: Literal["integer", "number", "truth", "text"]
    help: str
    is_list: bool = False

    def value(self, texts: Sequence[str]) -> Any:
        """The value that texts spell, quantities included."""
        from service.validation.flat import FlatField, field_value

        field = FlatField(name=self.name, path=tuple(self.path.split(".")), form=self.form, is_list=self.is_list)
        value = field_value(field, texts)
        return field.meant(value) if isinstance(value, str) and self.form != "text" else value


COMMON = (
    ("--model NAME", "Name, Hugging Face id; or the first word"),
    ("--sequence-length, --seq", "Tokens of a sequence, e.g. 8192 or 8k"),
    ("--global-batch, --gbs", "Sequences of a step over all GPUs"),
    ("--micro-batch, --mbs", "Sequences that a GPU runs at once"),
    ("--training-tokens", "Tokens of the whole run, e.g. 200B"),
    ("--gpu NAME, --gpus INT", "GPU and their number; or --cluster NAME --nodes INT"),
    ("--usd-per-gpu-hour NUM", "Price; or --provider, --region, --price-model"),
    ("--tp, --pp, --cp, --ep, --dp", "Degrees: tensor, pipeline, context, expert, data"),
    ("--zero-stage, --recompute", "Sharding 0 to 3; none, selective or full"),
    ("--precision, --optimizer", "bf16-mixed, fp8-...; adamw, muon, ..."),
    ("--stack, --method", "Training software; full, lora or qlora"),
)
"""Options of the one-screen help."""

METAVARS = {
    **{"integer": "INT", "integers": "INT:INT", "number": "NUM", "numbers": "NUM:NUM"},
    **{"truth": "BOOL", "text": "NAME"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a command reads its options into a body, and what its help shows."""

    examples: tuple[str, ...]
    extras: tuple[Extra, ...] = ()
    body: Callable[[dict[str, Any], Texts], dict[str, Any]] | None = None
    """Body of a file's body and the texts of fields; the question itself where absent."""
    is_inside: bool = False
    """Whether the question stands in the body's field `question`."""


class QuestionCommand(console.StrictCommand):
    """A command with an option for each field of a question; to build all of them would take longer than an answer."""

    form: Form

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options that are given; all of them where one is unknown, so that the nearest can be named."""
        own = {name for option in self.params for name in option.opts} | {*ctx.help_option_names, console.HELP_ALL}
        if any(word.startswith("--") and word.partition("=")[0] not in own for word in args):
            switches = {one.name for one in self.form.extras if one.form == "truth"}
            args = [_own_word(args, place, switches) for place in range(len(args))]
        words = {word.partition("=")[0] for word in args if word.startswith("--")} - own
        ctx.meta[OPTIONS] = words
        rest = super().parse_args(ctx, args)
        beside = {option.name for option in self.params}
        texts = {name: ctx.params.pop(name) for name in [*ctx.params] if name not in beside}
        ctx.meta[GIVEN] = {name: [*given] for name, given in texts.items() if given}
        return rest

    def get_params(self, ctx: Any) -> list[Any]:
        """The options that are read."""
        own = super().get_params(ctx)
        if ctx.resilient_parsing:
            return [*own, *self._options(None)]
        words = ctx.meta.get(OPTIONS)
        if not words:
            return own
        given = self._options(words)
        is_known = words <= {name for option in given for name in option.opts}
        return [*own, *(given if is_known else self._options(None))]

    def _options(self, words: set[str] | None) -> list[Any]:
        """Options of the fields with these names, or of all fields."""
        from service.validation.flat import flat_fields

        def is_given(name: str) -> bool:
            return words is None or not words.isdisjoint(_names_of(name))

        extras = [_parameter(one.name) for one in self.form.extras if is_given(one.name)]
        fields = [_parameter(name, field) for name, field in flat_fields().items() if is_given(name)]
        return _built([*extras, *fields, *(_parameter(n, is_hidden=True) for n in _names_beside() if is_given(n))])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print examples and the options that most questions use, or every field with its meaning."""
        is_whole = console.asks_for_all(ctx)
        formatter.write_usage(ctx.command_path, " ".join(self.collect_usage_pieces(ctx)))
        self.format_help_text(ctx, formatter)
        console.write_examples(formatter, self.form.examples)
        if not is_whole:
            with formatter.section(heading("Fields of the question")):
                formatter.write_dl(COMMON)
        own = [record for option in self.params if (record := option.get_help_record(ctx)) is not None]
        own = [record for record in own if record[0].startswith("-")]
        extras = [(_option_name(one.name), one.help) for one in self.form.extras]
        more = [] if is_whole else [(console.HELP_ALL, "All fields, with their meanings and choices")]
        with formatter.section(heading("Options")):
            formatter.write_dl([*extras, *own, *more])
        if is_whole:
            _write_fields(formatter)


def command(form: Form) -> type[QuestionCommand]:
    """The class of a command on questions."""
    return type("QuestionCommand", (QuestionCommand,), {"form": form})


def _write_fields(formatter: Any) -> None:
    from service.validation.flat import flat_fields

    parts: dict[str, list[tuple[str, str]]] = {}
    for field in flat_fields().values():
        choices = f" One of {', '.join(map(str, field.choices))}." if field.choices else ""
        row = (f"{', '.join(_names_of(field.name))} {METAVARS[field.form]}", f"{field.meaning}{choices}")
        parts.setdefault(field.path[0], []).append(row)
    for part, rows in parts.items():
        with formatter.section(heading(part.capitalize())):
            formatter.write_dl(rows)
    with formatter.section(heading("Exit codes")):
        formatter.write_dl(console.EXIT_CODES)


def _option_name(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _own_word(words: Sequence[str], place: int, switches: set[str]) -> str:
    """A word by the field's own name where it has another tool's, and with its value where it is a bare switch."""
    from service.validation.flat import flat_fields, flat_name
    from service.validation.other_names import other_names, plain

    word, known = words[place], flat_fields()
    if not word.startswith("--"):
        return word
    given, mark, text = word.partition("=")
    name = plain(given)
    meant = other_names().get(name, ()) if name not in known else ()
    name = flat_name(meant[0]) if len(meant) == 1 and flat_name(meant[0]) in known else name
    off = name.removeprefix("no_")
    if not mark and off in switches | {one.name for one in known.values() if one.form == "truth"}:
        is_last = place + 1 == len(words) or words[place + 1].startswith("-")
        if name != off or is_last:
            return f"{_option_name(off)}={'true' if name == off else 'false'}"
    return f"{_option_name(name)}{mark}{text}" if name in known else word


def _names_beside() -> tuple[str, ...]:
    from service.validation.other_names import names_without_field

    return names_without_field()


def _names_of(name: str) -> list[str]:
    """The options of a field: its own name, and short ones."""
    from service.validation.flat import ALIASES

    return [_option_name(one) for one in (name, *(alias for alias, known in ALIASES.items() if known == name))]


def _parameter(name: str, field: "FlatField | None" = None, *, is_hidden: bool = False) -> Parameter:
    """An option that may be repeated."""

    def values(incomplete: str) -> list[str]:
        return [] if field is None else _values_of(field, incomplete)

    metavar = None if field is None else METAVARS[field.form]
    option = typer.Option(*_names_of(name), metavar=metavar, hidden=is_hidden, autocompletion=values)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[list[str] | None, option])


def _built(parameters: Sequence[Parameter]) -> list[Any]:
    def holder(**_: Any) -> None: ...

    holder.__dict__["__signature__"] = Signature(parameters)
    alone = typer.Typer(add_completion=False)
    alone.command()(holder)
    built: Any = get_command(alone)
    return console.without_converters([option for option in built.params if isinstance(option, TyperOption)])


def _values_of(field: "FlatField", incomplete: str) -> list[str]:
    """Values of a field that begin so: its choices, or names of the catalogue."""
    known = [*map(str, field.choices)] or (["true", "false"] if field.form == "truth" else [*names_for(field.name)])
    return [one for one in known if one.casefold().startswith(incomplete.casefold())]


def names_for(field: str) -> Iterator[str]:
    """Names of the catalogue that a field takes."""
    from service.catalogue import shipped_catalogue

    catalogue = shipped_catalogue()
    match field:
        case "model":
            yield from (slug for slug, row in catalogue.models.items() if row.model is not None)
        case "gpu" | "cluster":
            yield from catalogue.gpus if field == "gpu" else catalogue.clusters
        case "provider" | "region" | "instance_type":
            yield from sorted({getattr(row, field) for row in catalogue.prices})


def _models(incomplete: str) -> list[str]:
    return [name for name in names_for("model") if name.startswith(incomplete)]


Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="MODEL|FILE", help="Model, or a file.", autocompletion=_models, show_default=False),
]
File = Annotated[
    str | None, typer.Option("--file", "-f", help="Question as JSON or YAML, - for stdin; options change it.")
]
FailIfOom = Annotated[bool, typer.Option("--fail-if-oom", help="Exit with 3 if the job runs out of memory.")]


def fail_if(verdict: str | None, *, is_asked: bool) -> None:
    """End with the exit code of a job that runs out of memory."""
    if is_asked and verdict == "out_of_memory":
        raise typer.Exit(console.OUT_OF_MEMORY)


SUFFIXES = (".json", ".yaml", ".yml")


def is_file(word: str) -> bool:
    """Whether a word names a file with a question, there or not; a name without its ending, only one that is there."""
    return word == "-" or word.endswith(SUFFIXES) or (Path(word).exists() and not Path(word).is_dir())


class TwoFiles(TraincostError):
    """Two files are given where one question is asked."""


class Request:
    """The body of a command's request, and the names of its fields for refusals."""

    def __init__(self, context: typer.Context, words: Sequence[str] | None = None, file: str | None = None) -> None:
        own: Any = context.command
        self._form: Form = own.form
        texts: dict[str, list[str]] = {name: [*given] for name, given in context.meta[GIVEN].items()}
        files = [*([] if file is None else [file]), *filter(is_file, words or ())]
        models = [word for word in words or () if not is_file(word)]
        if len(files) > 1:
            raise TwoFiles(f"{' and '.join(files)} are given: one file holds the question")
        if models:
            texts["model"] = [*models, *texts.get("model", ())]
        self._is_file = bool(files) and not texts
        with self.refusals():
            self.body = self._read(self._file_body(files[0]) if files else {}, texts)

    def _file_body(self, name: str) -> dict[str, Any]:
        from service.validation.json_text import body_in

        body = dict(body_in(name))
        is_bare = self._form.is_inside and "question" not in body and {"model", "recipe", "cluster"} & body.keys()
        return {"question": body} if is_bare else body

    def _read(self, body: dict[str, Any], texts: dict[str, list[str]]) -> dict[str, Any]:
        if self._is_file:
            return body
        extras = [(one, texts.pop(one.name)) for one in self._form.extras if one.name in texts]
        problems: list[Problem] = []
        for one, given in extras:
            try:
                _set(body, one.path.split("."), one.value(given))
            except Refused as refused:
                problems += refused.problems
        try:
            body = (self._form.body or changed)(body, texts)
        except Refused as refused:
            problems += refused.problems
        refuse(problems)
        return body

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Name the options that are wrong; fields of a file that no option changes are named as they stand there."""
        try:
            yield
        except Refused as refused:
            if self._is_file:
                raise
            raise Refused(*map(self._by_option, refused.problems)) from None

    def _by_option(self, problem: Problem) -> Problem:
        from service.validation.flat import COMMAND_LINE, rephrased

        path = re.sub(r"^(model|cluster|price|recipe|layout)s\.\d+", r"\1", problem.field.removeprefix("question."))
        own = {one.path: one.name for one in self._form.extras}
        named = replace(problem, field=own.get(path, own.get(path.rpartition(".")[0], path)))
        return rephrased(named, COMMAND_LINE, own.values())


def _set(body: dict[str, Any], path: Sequence[str], value: Any) -> None:
    *outer, last = path
    for step in outer:
        inner = body.get(step)
        body[step] = body = dict(inner) if isinstance(inner, Mapping) else {}
    body[last] = value


INSTEAD = {
    "gpus": "nodes",
    "nodes": "gpus",
    "global_batch": "global_batch_tokens",
    "global_batch_tokens": "global_batch",
}
"""Fields that state the same as another one."""


def changed(question: dict[str, Any], texts: Texts) -> dict[str, Any]:
    """A question with the fields of options in place of its own; a name or a price replaces a whole part."""
    from service.validation.flat import body_of_flat, with_value

    result, given = dict(question), [(name, text) for name, texts_of in texts.items() for text in texts_of]
    for part, fields in body_of_flat(given, has_cluster=question.get("cluster") is not None).items():
        former = result.get(part)
        if former is None or part == "price" or not isinstance(fields, dict) or "preset" in fields:
            result[part] = fields
            continue
        whole: dict[str, Any] = {"preset": former} if isinstance(former, str) else dict(former)
        for name, value in fields.items():
            whole.pop(INSTEAD.get(name, ""), None)
            inner = value if isinstance(value, dict) else {}
            for step, one in inner.items():
                whole = with_value(whole, (name, step), one)
            whole = whole if inner else {**whole, name: value}
        result[part] = whole
    return result


def repeated(texts: Texts) -> dict[str, "FlatField"]:
    """Fields with one value that are given several."""
    from service.validation.flat import flat_fields

    known = flat_fields()
    several = (name for name, given in texts.items() if len(given) > 1 and name in known)
    return {name: known[name] for name in several if not known[name].is_list}


def first_of(texts: Texts, names: Mapping[str, Any]) -> Texts:
    """Options with the first value of some."""
    return {name: given[:1] if name in names else given for name, given in texts.items()}


def values_of(field: "FlatField", texts: Sequence[str]) -> tuple[tuple[str, ...], list[Any]]:
    """Where a field's value stands in a question, and the values that texts spell."""
    from service.validation.flat import NAMING, field_value

    path = field.path[:-1] if field.path[-1] in NAMING else field.path
    return path, [field_value(field, [text]) for text in texts]


def combinations(part: str, texts: Texts, question: Mapping[str, Any]) -> list[Any]:
    """A part of a question in every combination of the values given for it; empty where none is."""
    of_part = {name: given for name, given in texts.items() if part_of(name) == part}
    if not of_part:
        return []
    several = repeated(of_part)
    own = {part: question[part]} if question.get(part) is not None else {}
    choices = product(*(of_part[name] for name in several))
    return [
        changed(dict(own), {**of_part, **{name: [text] for name, text in zip(several, one, strict=True)}})[part]
        for one in choices
    ]


def part_of(name: str) -> str:
    """The part of a question to which an option belongs."""
    from service.validation import other_names
    from service.validation.flat import ALIASES, flat_fields

    field = flat_fields().get(ALIASES.get(name, name))
    return (other_names.part_of(name) or "") if field is None else field.path[0]
