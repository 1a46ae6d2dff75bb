"""Words of the old dialect, refused in names and texts. service/README.md has the terms to use instead."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.house.source import ROOT, SERVICE, each_of, nodes_of, python_files, shown

WORDS = re.compile(
    r"\b(?:told|untold|retold|said|unsaid|spoken|whoever|whomever|somebody|nobody|everybody|anybody|deeds?|in turns"
    r"|seekers?|lingering|errands?|manners?|wish(?:es)?|nouns?|suppositions?|warden|dialect)\b",
    re.IGNORECASE,
)
"""Words of docstrings and messages. A word that a text needs in another sense does not belong here."""

NAME_WORDS = frozenset({
    "told", "untold", "retold", "said", "unsaid", "spoken", "deed", "deeds", "turns", "looks", "openings", "opening",
    "seeker", "standing", "manner", "wish", "errand", "noun", "nouns", "supposition", "doubt", "doubts", "drawback",
    "shortage", "climb", "fullest", "surroundings", "warden", "whoever", "somebody", "nobody",
})  # fmt: skip
"""Words of identifiers, as they stand between underscores or capitals."""

CLASS_WORDS = frozenset({"asked", "wanted", "judged", "judging", "kept"})
"""Words that no class is named by, though a variable may be."""

QUESTION = re.compile(r"[^.:;`]*\?(?:\s|$)")
"""A docstring that opens with a question."""

WIRE_NAMES = frozenset({
    "Drawback", "Said", "SaidNumber", "Supposition", "ran_out_told", "said", "said_bytes", "supposition",
})  # fmt: skip
"""Fields and classes of answers that callers hold: names of the contract stay."""

WIRE_TEXTS = frozenset({
    "compile state not told", "compiled or not is not told", "not told", "not told: ",
    "is said twice, differently: by ", " has no noun", "torch peak, allocated or reserved not told",
    "a checkpoint that is not asynchronous stalls until it is written, and how long that takes is not told",
    ", and until it is written at write_bytes_per_s: both are told, and they may differ",
    "named modules are computed again, core attention unless told otherwise",
})  # fmt: skip
"""Cells of published tables, reasons and messages that callers hold: they stay."""

NOT_CLEAN_YET = frozenset[str]()
"""Rooms, and folders of features, that are still to be rewritten. Remove a room once it is clean; add none."""

FILES = python_files("service")


GENERATED = {"estimator"}
"""Rooms whose README is written from docstrings."""


def documents() -> list[Path]:
    """Pages of the guide and documents for people."""
    pages = sorted((SERVICE / "web" / "guide").glob("*.html"))
    return [ROOT / "README.md", ROOT / ".github" / "CONTRIBUTING.md", *sorted(SERVICE.rglob("*.md")), *pages]


def _room(path: Path) -> str:
    parts = path.relative_to(SERVICE).parts
    return "/".join(parts[:2]) if parts[0] == "features" and len(parts) > 2 else parts[0].removesuffix(".py")


def _words_of(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def _names(path: Path) -> Iterator[str]:
    yield path.stem
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _texts(path: Path) -> Iterator[str]:
    """Docstrings and messages: strings of more than one word, but for docstrings of formulas, which answers hold."""
    values = (node.value for node in nodes_of(path) if isinstance(node, ast.Constant))
    texts = (text for text in values if isinstance(text, str) and " " in text and "\n    Formula:" not in text)
    return (text for text in texts if text not in WIRE_TEXTS)


def _questions(path: Path) -> Iterator[str]:
    for node in nodes_of(path):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = (ast.get_docstring(node) or "").split("\n\n")[0]
            if QUESTION.match(first):
                yield first


def _classes(path: Path) -> Iterator[str]:
    return (node.name for node in nodes_of(path) if isinstance(node, ast.ClassDef))


@cache
def _findings(path: Path) -> list[str]:
    wire = WIRE_NAMES if _room(path) in {"answers", "cli"} else frozenset[str]()
    names = [f"name {name}" for name in _names(path) if _words_of(name) & NAME_WORDS and name not in wire]
    names += [
        f"name {name}" for name in _classes(path) if _words_of(name) & (NAME_WORDS | CLASS_WORDS) and name not in wire
    ]
    texts = [f"text {match[0]!r} in {text[:60]!r}" for text in _texts(path) for match in WORDS.finditer(text)]
    questions = [f"question {text[:60]!r}" for text in _questions(path)]
    return [f"{shown(path)}: {one}" for one in names + texts + questions]


@each_of([path for path in FILES if _room(path) not in NOT_CLEAN_YET])
def test_a_clean_room_uses_the_terms_of_the_field(path: Path) -> None:
    found = _findings(path)
    assert not found, f"use a term of service/README.md or plain English: {found}"


@each_of([path for path in documents() if path.parent.name not in GENERATED])
def test_documents_use_the_terms_of_the_field(path: Path) -> None:
    text = re.sub(
        r"(?s)<(pre|code|table)\b.*?</\1>|<!-- figures -->.*<!-- end of figures -->|`[^`]*`",
        "",
        path.read_text(encoding="utf-8"),
    )
    found = [match[0] for match in WORDS.finditer(text)]
    assert not found, f"{shown(path)}: use a term of service/README.md or plain English: {found}"


@each_of([*python_files("tests"), *sorted((ROOT / ".ci").rglob("*.py"))])
def test_docstrings_of_tests_and_programs_open_with_a_statement(path: Path) -> None:
    found = [text[:60] for text in _questions(path)]
    assert not found, f"{shown(path)}: write a noun phrase or an imperative: {found}"


def test_rooms_that_are_clean_leave_the_list() -> None:
    unclean = {_room(path) for path in FILES if _findings(path)}
    clean = sorted(NOT_CLEAN_YET - unclean)
    assert not clean, f"{clean} are clean: remove them from NOT_CLEAN_YET"


def test_a_word_of_the_dialect_would_be_found() -> None:
    assert _words_of("RefusedDeeds") & NAME_WORDS
    assert WORDS.search("Whoever sent it is not told")
    assert QUESTION.match("Who sent a token, and when does it end?")
    assert not QUESTION.match("The query, with its `?`.")
