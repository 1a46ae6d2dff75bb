"""Patterns of sentences: numbers, prices, GPUs with their number, and the words of fields and choices."""

import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from service.validation.flat import FlatField, flat_fields
from service.validation.other_names import ACCUMULATION, NO_EFFECT, STEPS, other_names
from service.validation.quantities import other_choices

FLAGS = re.ASCII | re.IGNORECASE
END = r"(?![A-Za-z0-9_])"
STOP = r"(?!\d|,\d(?!\d{0,6} ?x))"
NUMBER = rf"(?:\d{{1,3}}(?:,\d{{3}})+{STOP}|\d{{4,20}}(?!\d)|\d{{1,3}}{STOP})(?:\.\d{{1,9}})?(?:e\+?\d{{1,2}})?"
"""A number, perhaps with commas between thousands; one with another comma is none, but for that before 8xH100."""
SCALE = r"(?: ?(?:ki|mi|gi|k|m|b|t|bn|mn|thousand|million|billion|trillion)(?![a-z0-9]))?"
QUANTITY = rf"(?P<quantity>{NUMBER}{SCALE})"
IS = r" ?(?:=|:|of|is|at|to|set to|size)? ?"
COUNTS = {"a": 1, "an": 1, "one": 1, "single": 1, "two": 2, "dual": 2, "three": 3, "four": 4, "quad": 4, "six": 6,
          "eight": 8, "sixteen": 16}  # fmt: skip
COUNT = rf"(?:\d{{1,3}}(?:,\d{{3}})+|\d{{1,7}}k?)(?![\d.])|(?:{'|'.join(COUNTS)})(?= )"
GPUS = r"(?:gpus?|cards?|accelerators?|chips?)"
NODES = r"(?:nodes?|servers?|machines?|hosts?|instances?|box(?:es)?|vms?)"
LARGEST_NODE = 16
"""GPUs that one node may have where a sentence says so many of a node."""


def compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, FLAGS)


def phrase(words: str) -> str:
    """A pattern of words between which a space also stands for a hyphen, an underscore or nothing."""
    return re.sub(r" (?!\?)", "[ _-]", words).replace(" ?", "[ _-]?")


class Choice(NamedTuple):
    """What words mean: a field and its value, and other values that they may mean."""

    path: str
    value: Any
    others: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Words:
    """The words of the grammar, compiled."""

    before: re.Pattern[str]
    """A name and its number, as tp 8 and sequence length of 8192 tokens."""
    after: re.Pattern[str]
    """A number and its name, as 8k context."""
    names: Mapping[str, str]
    """Fields by their names, without separators."""
    chosen: re.Pattern[str]
    """The name of a field with choices, before its value, as optimizer: adamw."""
    chosen_fields: Mapping[str, FlatField]
    """Fields with choices by these names, without separators."""
    phrases: tuple[tuple[re.Pattern[str], Choice, re.Pattern[str] | None], ...]
    reasons: tuple[tuple[re.Pattern[str], str], ...]
    choices: Mapping[str, Choice]
    """Choices of fields by the words that mean them, with hyphens between them."""
    fillers: frozenset[str]


@cache
def words() -> Words:
    with Path(__file__).with_name("words.toml").open("rb") as file:
        table = tomllib.load(file)
    names: dict[str, str] = {"sequences": "recipe.sequence_length"}
    spelled: dict[str, set[str]] = {}
    for path, own in table["names"].items():
        for name in own:
            names[bare(name)] = path
            spelled.setdefault(path, set()).add(phrase(re.escape(name).replace("\\ ", " ?")))
    for name, paths in other_names().items():
        path = LAUNCHERS.get(paths[0], paths[0]) if len(paths) == 1 else "recipe.batch_size"
        if paths[0] != NO_EFFECT and bare(name) not in names and _is_number(path):
            names[bare(name)] = path
            spelled.setdefault(path, set()).add(spaced(name))
    fields = frozenset(table["choices"]["fields"])
    choices = _choices(fields, table["choices"]["not_alone"])
    chosen = {name: one for name, one in _chosen(fields).items() if name not in choices}
    after = _alternatives(one for path in table["after"]["names"] for one in spelled[path])
    axes = _alternatives(one for path, own in spelled.items() if path.startswith("layout.") for one in own)
    each = r"(?: ?(?:per|a|/) ?(?:(?P<each>gpu|device|rank)|step|batch)(?![a-z]))?"
    unit = rf"(?P<unit>[ -]?(?:tokens?|toks?|sequences?|samples?)(?![a-z]))?{each}"
    every = _alternatives(one for own in spelled.values() for one in own)
    return Words(
        before=compiled(rf"(?:--?)?(?P<name>{every}){IS}{QUANTITY}(?! ?-?bits?){unit}{END}"),
        after=compiled(
            rf"{QUANTITY}(?:[ -]?way[ -]?(?P<axis>{axes})|[ -]?(?P<name>{after})"
            rf"|(?P<unit>[ -]tokens?)[ -](?P<of>sequences|{after})(?!{IS}\d)){each}{END}"
        ),
        names=names,
        chosen=compiled(rf"(?:--?)?(?P<name>{_alternatives(map(spaced, chosen))})(?: ?[=:] ?| )"),
        chosen_fields={bare(name): one for name, one in chosen.items()},
        phrases=tuple(_phrase(row) for row in table["phrases"]),
        reasons=tuple((compiled(f"(?:{row['words']}){END}"), row["reason"]) for row in table["reasons"]),
        choices=choices,
        fillers=frozenset(table["fillers"]["words"].split()),
    )


def _alternatives(patterns: Iterable[str]) -> str:
    return "|".join(sorted(patterns, key=len, reverse=True))


def _chosen(names: Collection[str]) -> dict[str, FlatField]:
    """Fields with choices by their own names and those of launchers."""
    fields = {path_of(one): one for one in flat_fields().values() if one.choices and one.own_name in names}
    named = {one.own_name: one for one in fields.values()}
    return named | {name: fields[paths[0]] for name, paths in other_names().items() if paths[0] in fields}


def path_of(one: FlatField) -> str:
    """The dotted path of a field; that of its object where it names the object."""
    return ".".join(one.path[:-1] if one.own_name != one.path[-1] else one.path)


LAUNCHERS = {STEPS: "recipe.max_steps", ACCUMULATION: "recipe.gradient_accumulation_steps"}


def spaced(name: str) -> str:
    """The pattern of a launcher's name, in which a space or hyphen stands for an underscore."""
    return name.replace("_", "[ _-]?")


def bare(name: str) -> str:
    return re.sub(r"[ _-]", "", name.casefold())


def _is_number(path: str) -> bool:
    if path in LAUNCHERS.values() or path == "recipe.batch_size":
        return True
    own = next((one for one in flat_fields().values() if ".".join(one.path) == path), None)
    return own is not None and own.form in {"integer", "number"} and path.partition(".")[0] in {"recipe", "layout"}


def _phrase(row: Mapping[str, Any]) -> tuple[re.Pattern[str], Choice, re.Pattern[str] | None]:
    without = row.get("unless")
    choice = Choice(row["field"], row["value"], tuple(row.get("others", ())))
    return compiled(f"(?:{phrase(row['words'])}){END}"), choice, compiled(without) if without else None


def _choices(names: Collection[str], not_alone: Collection[str]) -> Mapping[str, Choice]:
    found: dict[str, Choice] = {}
    for one in flat_fields().values():
        if one.own_name in names and one.choices:
            path = path_of(one)
            for value in one.choices:
                found.setdefault(str(value).casefold(), Choice(path, value))
            for form, values in other_choices(one.own_name).items():
                typed = [next((own for own in one.choices if str(own) == value), value) for value in values]
                found.setdefault(form, Choice(path, typed[0], tuple(typed[1:])))
    return {form: choice for form, choice in found.items() if form not in not_alone}


CLOUDS = {"google": "gcp", "googlecloud": "gcp", "amazon": "aws", "lambdalabs": "lambda", "oracle": "oci",
          "oraclecloud": "oci"}  # fmt: skip
"""Providers of prices by their other names."""
CLOUD = compiled(
    r"(?:(?:on|at|from|in) )?(?P<cloud>aws|amazon|azure|gcp|google cloud|coreweave|crusoe|lambda labs|lambda|nebius"
    r"|oracle cloud|oracle|oci|runpod)" + END
)
HOUR = r"(?:h|hr|hrs|hour|hours)(?![a-z])"
NODE = r"node|instance|machine|server"
DOLLARS = r"(?:\$|usd|dollars?)"
MONEY = compiled(
    r"(?P<limit>(?:under|below|within|at most|less than|for less than|for under|max|maximum|up to|with"
    r"|budget(?: of| is|:)?) ?(?:a )?)??"
    rf"(?:(?P<dollars>(?:us)?\$ ?{NUMBER})|usd ?(?P<usd>{NUMBER})"
    rf"|(?P<plain>{NUMBER})(?= ?(?:k|m|b|million|billion|thousand)? ?{DOLLARS}))"
    rf"(?P<scale> ?(?:k|m|mm|b|million|billion|thousand)(?![a-z]))?(?: ?{DOLLARS}(?![a-z]))?"
    rf"(?P<per> ?(?:/|per|an?|each) ?(?:(?P<machine>{NODE})|gpu|accelerator|chip|card|(?P<gpu>[abhv]\d{{2,3}}))?"
    rf"[ /-]{{0,3}}(?:per )?{HOUR})?"
    rf"(?: ?(?:/|per|an?) ?(?:(?P<node>{NODE})|gpu|accelerator|card)(?![a-z]))?"
    r"(?P<budget> (?:budget|max|total|in total))?"
)
"""A price or a budget: $2.50/h, 2.5 usd per gpu hour, $20/h per node, under $1M."""
DECIMAL_COMMA = compiled(rf"\$?\d{{1,3}},(?!\d{{3}}(?!\d)|\d{{1,7}} ?x)\d+(?:[.,]\d+)*(?: ?(?:{DOLLARS}|eur)[^\s,;]*)?")
"""A number with a comma that stands between no thousands."""
DEADLINE = compiled(
    r"(?P<limit>(?:in|within|under|in under|in less than|less than|at most|deadline(?: of| is|:)?|max) ?)?"
    r"(?P<number>\d{1,5}(?:\.\d{1,3})?|an?|one|two|three)[ -]?(?P<unit>days?|d|weeks?|w|hours?|hrs?|h|months?)"
    + END
    + r"(?P<most> (?:max|at most|deadline|or less)(?![a-z]))?"
)
NEGATION = compiled(r"(?:without|w/o|no|not|non|disable|disabled) (?P<word>[a-z0-9][\w.+-]{0,40})")
NODES_OF = compiled(
    rf"(?P<nodes>{COUNT}) ?{NODES},? ?(?:x|of|with|having|and|\(|,|each with|each)? ?"
    rf"(?P<count>{COUNT}) ?(?P<times>x|\*)? ?"
)
"""8 nodes of 8, before a GPU."""
NODE_TIMES = compiled(r"(?P<nodes>\d{1,6})(?P<each> ?[x*] ?| )(?P<count>\d{1,2}) ?(?P<times>x|\*)? ?(?:of )?")
"""4x8 and 4 8x, before a GPU."""
TIMES = compiled(rf"(?P<count>{COUNT}) ?(?P<times>x|\*)? ?(?:of )?(?:the )?")
"""64x, 64 and a, before a GPU."""
OF_NODES = compiled(rf" (?:gpu )?{NODES}{END}")
COUNT_AFTER = compiled(rf" ?(?:x|\*|:) ?(?P<count>\d{{1,7}}){END}")
PER_NODE = compiled(rf"(?P<count>{COUNT}) ?(?:{GPUS} ?)?(?:per|/|in each|on each|a|each) ?{NODES}{END}")
SOME_GPUS = compiled(rf"(?P<count>{COUNT}) ?(?:x )?(?:nvidia |amd )?{GPUS}{END}")
SOME_NODES = compiled(rf"(?P<count>{COUNT}) ?{NODES}{END}")
QUALIFIER = compiled(
    r"(?:with |each with )?(?:(?P<form>sxm\d?|pcie|nvl)"
    r"|(?P<size>\d{1,3}) ?gi?b?(?: of)?(?: (?:v?ram|memory|gpu memory|hbm\w?))?(?: (?:each|per gpu|per card|a piece))?)"
    + END
)
"""The form or memory of a GPU that is named before."""
TOKENS = compiled(
    rf"{QUANTITY}[ -]?(?:training |train )?(?:tokens?|toks?)(?P<batch> ?(?:per|a|/) ?(?:batch|step))?{END}"
)
SIZE_ALONE = compiled(
    rf"(?P<size>\d{{1,4}}(?:\.\d{{1,3}})? ?(?:b|m|billion|million|t))(?P<what>[ -]?(?:params?|parameters?|model))?{END}"
)
