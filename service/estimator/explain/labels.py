"""What numbers and inputs are called, the units that people read them in, and where an input may come from."""

import re
import tomllib
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from service.units import COUNT, DIMENSIONS, Dimension, dimension_of

_ACRONYMS = {"gpu": "GPU", "gpus": "GPUs", "flop": "FLOP", "lm": "LM", "mlp": "MLP", "qkv": "QKV"}
_ENDINGS = (
    ("_bytes_per_s", " rate"),
    ("_flop_per_s", " peak"),
    ("_bytes", ""),
    ("_seconds", ""),
    ("_fraction", ""),
    ("_usd", ""),
)
"""Units at the end of names, and what labels say instead."""
_LISTS = {"lines", "parts", "cost", "lost", "communication"}
"""Fields of an answer whose items have kinds."""
_ENDS = {"low": ", low end", "high": ", high end"}
_AMOUNT = re.compile(r"(?:.*\.)?(?:layer_kind_\d+|embedding|head|depth|group_\d+|each_\w+|chunk_\d+)\.(.+)")
MOST_NAMES = 8192
"""Names of numbers and inputs that stay read. Source: a choice; an answer has some hundred."""
_COLLECTIVE = re.compile(r"(?:all_gather|all_reduce|reduce_scatter|all_to_all|send)_\d+")
_WHOLE = re.compile(r"(?:embedding|head|depths|layer_kind_\d+)(?:_flop)?")
_TIMES = ("count", "layers", "calls", "parameters", "in_flight")


@cache
def _table() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("labels.toml").read_text(encoding="utf-8"))


@lru_cache(MOST_NAMES)
def number_label(cell: str) -> str:
    """What a number of an answer is called, by its cell name.

    >>> number_label("totals.cost.gpus.usd.value"), number_label("memory.stages.1.lines.master_weights.bytes")
    ('Cost of GPUs', 'Master weights, stage 1')
    >>> number_label("totals.days.low")
    'Days of wall time, low end'
    """
    fields: list[str] = []
    kind = stage = ""
    for name in cell.split("."):
        if fields and fields[-1] in _LISTS and not kind and cell.count(".") > 1:
            kind = name
        elif name.isdigit():
            stage = f", stage {name}"
        elif name not in ("value", *_ENDS):
            fields.append(name)
    label = _table()["numbers"].get(".".join(fields)) or input_label(fields[-1])
    return _capital(label.format(_kind(kind))) + stage + _ENDS.get(cell.rpartition(".")[2], "")


def _kind(kind: str) -> str:
    return _table()["kinds"].get(kind) or _words(kind)


def _words(name: str) -> str:
    return " ".join(_ACRONYMS.get(word, word) for word in re.split(r"[_.]+", name) if word)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


@lru_cache(MOST_NAMES)
def input_label(name: str) -> str:
    """What an input is called.

    >>> input_label("stored_bytes"), input_label("layer_kind_0.attention.qkv"), input_label("gpus")
    ('Stored', 'Layer kind 0 attention QKV', 'GPUs')
    """
    known = _table()["inputs"].get(name)
    for ending, word in _ENDINGS:
        if name.endswith(ending):
            name = name.removesuffix(ending) + word
            break
    return known or _capital(_words(name))


@lru_cache(MOST_NAMES)
def input_dimension(name: str, result: Dimension) -> Dimension:
    """Dimension of an input: by the end of its name, for an amount of a sum that of the result, else a count.

    >>> input_dimension("head.count", DIMENSIONS["seconds"]).base, input_dimension("head.logits", COUNT) is COUNT
    ('1', True)
    """
    last = name.rpartition(".")[2]
    unit = _table()["units"].get(last)
    if unit is not None:
        return DIMENSIONS[unit]
    amount = _AMOUNT.fullmatch(name)
    if amount and amount[1] not in _TIMES:
        return result
    return counted().get(last) or dimension_of([last])


@cache
def counted() -> dict[str, Dimension]:
    """Dimensions of counts, by the names of what they count."""
    named = {name: f"{{}} {word}" for name, word in _table()["counts"].items()}
    return {
        name: replace(COUNT, forms={"1": form} | {unit: form.format(f"{{}} {unit}") for unit in COUNT.ladder[1:]})
        for name, form in named.items()
    }


@lru_cache(MOST_NAMES)
def cell_dimension(cell: str) -> Dimension:
    """Dimension of a number of an answer, of a field or of a constant, by its dotted name."""
    names = cell.lower().split(".")
    return counted().get(names[-1]) or dimension_of(names)


@lru_cache(MOST_NAMES)
def formula_of(name: str, part: str) -> str | None:
    """The formula, constant or field that describes an input of a part of an answer, by its module and name.

    >>> formula_of("layer_kind_0.mlp.up", "step"), formula_of("layer_kind_0.mlp.up", "memory")
    ('kernels.op_seconds', 'activations.kept_bytes')
    """
    found: str | None = _table()["formulas"].get(name.rpartition(".")[2])
    amount = _AMOUNT.fullmatch(name)
    if found or not (_WHOLE.fullmatch(name) or (amount and amount[1] not in _TIMES)):
        return found
    if amount and _COLLECTIVE.fullmatch(amount[1]):
        return "collectives.transfer_seconds"
    formulas: dict[str, str] = _table()["amounts"]
    return formulas.get(part)


def row_of(name: str) -> str | None:
    """The row of a workload's software that an input is read from."""
    found: str | None = _table()["rows"].get(name)
    return found


def origins_of(name: str) -> tuple[str, ...]:
    """Places that an input may come from under another name."""
    return tuple(_table()["origins"].get(name, ()))
