"""Sources of formulas and constants, one by one: kind, text, and where each is read."""

import ast
import importlib
import re
from collections.abc import Callable, Iterator
from functools import cache
from inspect import getsource
from itertools import pairwise
from pathlib import Path
from pkgutil import walk_packages
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from service.estimator.answer import Reference, ReferenceKind
from service.estimator.explain.docstrings import read_docstring

_NAMES = re.compile(r"(?:see |\w+: )?([A-Za-z_][\w.]*(?:(?:, | and )[A-Za-z_][\w.]*)*)")
_REPOSITORY = re.compile(r"([\w.-]+/[\w.-]+)@([\w.-]*\w)")
_KINDS: tuple[tuple[str, ReferenceKind], ...] = (
    (r"definition|ISO 4217|IEEE 754", "definition"),
    (r"catalogue", "catalogue"),
    (r"\.csv|measure|median|fitted|fits|replays|profiling data|service\.(?:calibration|evaluation)|MAMF", "measured"),
    (r"(?:ml-engineering|SimuMax|aiconfigurator)@", "measured"),
    (r"arXiv:|doi:", "paper"),
    (
        r"[\w.-]+/[\w.-]+@|torch|PyTorch|Megatron|DeepSpeed|huggingface/|transformers|NCCL|Lightning-AI/|NVIDIA/",
        "software",
    ),
    (r"assum|round figure|a choice", "assumption"),
    (r"data sheet|guide|documentation|README|\.com\b|\.org\b|NVIDIA|Intel", "document"),
)
"""The kind of a source by the first of these that it holds; a derivation where it holds none."""
_HOMES = {
    "torch": "pytorch/pytorch",
    "PyTorch": "pytorch/pytorch",
    "Megatron": "NVIDIA/Megatron-LM",
    "DeepSpeed": "deepspeedai/DeepSpeed",
    "transformers": "huggingface/transformers",
    "NCCL": "NVIDIA/nccl",
}
"""Repositories of software that a source names without one."""
DEFINITION = "By definition: nothing in it is measured or fitted"


@cache
def references_of(formula: Callable[..., Any]) -> tuple[Reference, ...]:
    """The sources of a formula; names of constants and of other formulas are followed to theirs."""
    text = read_docstring(formula).sections.get("Source", "")
    return tuple(dict.fromkeys(_read(text, formula.__module__, set())))


@cache
def sources_of(text: str) -> tuple[Reference, ...]:
    """The sources that a row of a table names, one by one."""
    return tuple(reference(piece) for piece in _pieces(text))


class Described(NamedTuple):
    """What the code says of a constant, a field of a class, or a formula."""

    value: Any
    meaning: str
    equation: str
    references: tuple[Reference, ...]


@cache
def described(path: str) -> Described:
    """A constant, a field of a class or a formula of the estimator by the last name of its module and its own name."""
    module, _, name = path.partition(".")
    found = _modules()[module]
    value = getattr(found, name, None)
    if isinstance(value, FunctionType):
        docstring = read_docstring(value)
        sources = references_of(value) or (_reference("derivation", f"worked out by {path} of the estimator"),)
        return Described(None, docstring.summary, docstring.sections.get("Formula", ""), sources)
    meaning, _, source = documents(found.__name__)[name].partition("Source:")
    references = tuple(_read(source, found.__name__, {name})) or (reference("definition"),)
    return Described(value, _line(meaning), "", references)


@cache
def _modules() -> dict[str, ModuleType]:
    """Modules of the estimator by the last part of their names."""
    names = [one.name for one in walk_packages([str(Path(__file__).parents[1])], "service.estimator.")]
    return {name.rpartition(".")[2]: importlib.import_module(name) for name in names}


@cache
def documents(module: str) -> dict[str, str]:
    """What the strings below constants, and below fields of classes, say of them, by `NAME` and by `Class.field`."""
    return dict(_documented(ast.parse(getsource(importlib.import_module(module))).body, ""))


def _documented(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, str]]:
    for node, below in pairwise([*body, ast.Pass()]):
        if isinstance(node, ast.ClassDef):
            yield from _documented(node.body, f"{node.name}.")
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            yield prefix + target.id, str(below.value.value)


def _line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")


def _pieces(text: str) -> Iterator[str]:
    """Sources that stand in one text, between semicolons outside parentheses."""
    return filter(None, map(_line, re.split(r";\s(?![^()]*\))", text)))


def _read(text: str, module: str, seen: set[str]) -> Iterator[Reference]:
    for piece in _pieces(text):
        names = _NAMES.fullmatch(piece)
        found = [_followed(name, module, seen) for name in re.split(r", | and ", names[1])] if names else [None]
        if all(one is not None for one in found):
            for one in found:
                yield from one or ()
        else:
            yield reference(piece)


def _followed(name: str, module: str, seen: set[str]) -> list[Reference] | None:
    """Sources of what a name stands for; None where it stands for nothing in the code."""
    owner, _, last = name.rpartition(".")
    if owner == "StepConstants":
        meaning = documents("service.estimator.constants").get(name, "")
        return [_reference("measured", f"fitted to the published steps that ship with the service: {_line(meaning)}")]
    if owner == "Stack":
        return [_reference("software", f"software/stacks.json, {last} of the row of the stack")]
    home = _modules().get(owner) if owner else importlib.import_module(module)
    value = getattr(home, last, None)
    if home is None or value is None or last in seen:
        return [] if last in seen else None
    if callable(value) and not isinstance(value, type):
        source = read_docstring(value).sections.get("Source", "")
        return list(_read(source, value.__module__, {*seen, last}))
    below = documents(_home_of(last, home)).get(last, "").partition("Source:")[2]
    return list(_read(below, home.__name__, {*seen, last})) if below else None


def _home_of(name: str, module: ModuleType) -> str:
    """The module that defines a constant, which another may import."""
    if name in documents(module.__name__):
        return module.__name__
    return next((one.__name__ for one in _modules().values() if name in documents(one.__name__)), module.__name__)


def reference(text: str) -> Reference:
    """A source by its text.

    >>> reference("Rajbhandari et al. 2020, arXiv:1910.02054, figure 1").url
    'https://arxiv.org/abs/1910.02054'
    >>> reference("definition").kind, reference("NVIDIA/TransformerEngine@v2.11 pytorch/module").kind
    ('definition', 'software')
    """
    text = _line(text)
    kinds = (kind for pattern, kind in _KINDS if re.search(pattern, text))
    kind: ReferenceKind = next(kinds, "derivation")
    return _reference(kind, DEFINITION if text == "definition" else text)


def _reference(kind: ReferenceKind, text: str) -> Reference:
    return Reference(kind=kind, text=text, url=_url(kind, text))


def page_of(text: str) -> str | None:
    """The page that a source names: of a paper, of code at a revision, or any other; None without one.

    >>> page_of("Chowdhery et al. 2022, arXiv:2204.02311, appendix B")
    'https://arxiv.org/abs/2204.02311'
    """
    paper, code = re.search(r"(arXiv|doi):([\w./()-]*\w)", text), _REPOSITORY.search(text)
    page = re.search(r"https://[^\s,;)]+", text)
    if paper:
        return f"https://{'arxiv.org/abs' if paper[1] == 'arXiv' else 'doi.org'}/{paper[2]}"
    if page:
        return page[0]
    return f"https://github.com/{code[1]}/tree/{code[2]}" if code else None


def _url(kind: ReferenceKind, text: str) -> str | None:
    """Where a source is read; software that names no revision in its repository."""
    if page := page_of(text):
        return page
    if kind != "software":
        return "/v1/accuracy" if kind == "measured" else None
    named = re.search(r"(?<![\w.@-])([\w-]+/[\w.-]+)(?= )", text)
    home = next((home for word, home in _HOMES.items() if word in text), named[1] if named else None)
    return f"https://github.com/{home}" if home else None
