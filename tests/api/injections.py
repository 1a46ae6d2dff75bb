"""Texts that are harmless until something runs them, shows them or compares them, and how an answer is read back.

A text that is taken comes back letter by letter, in composed form, and no form of the answer runs it.
"""

import csv
import io
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any
from xml.etree import ElementTree as Xml
from zipfile import ZipFile

import httpx
from openpyxl import load_workbook

from service.api.openapi import JSON_BODY
from tests.echoes import unquoted

LOOKALIKES = (
    "\uff1d", "\uff0b", "\uff0d", "\uff20", "\ufe66", "\ufe62", "\ufe63", "\ufe6b", "\u207c", "\u207a", "\u207b",
    "\u208c", "\u208a", "\u208b", "\u2212",
)  # fmt: skip
"""Fullwidth, small, superscript and subscript forms of what begins a formula: programs with Asian input run them."""
SPACES = ("\xa0", "\u3000", "\u200b", "\ufeff", "  \t")
"""What a program may drop before it looks at a cell."""

FORMULAS = (
    "=1+1",
    "+1+1",
    "-1+1",
    "@SUM(1)",
    "=cmd|' /C calc'!A0",
    '=HYPERLINK("http://x","y")',
    "=1;=2",
    "\t=1",
    "\r=1",
    "\n=1",
    *(f"{sign}1+1" for sign in LOOKALIKES),
    *(f"{space}=1+1" for space in SPACES),
)
MARKUP = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "'\"><svg/onload=alert(1)>", "&amp;&lt;&#x41;", "]]>",
    "<![CDATA[x]]>", "<!--", '<?xml version="1.0"?>', "<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]>&b;",
    "javascript:alert(1)", "{{7*7}}", "${7*7}", "%(x)s", "{0}", "%s%n",
)  # fmt: skip
QUERIES = (
    "'; DROP TABLE models; --", "' OR '1'='1", "1; SELECT pg_sleep(9)", "\\'; --", "%", "_", "a' UNION SELECT 1 --",
    "../../etc/passwd", "..\\..\\x", "/dev/null", "CON", "a\\nb", "$(id)", "`id`", "| id", "; id", "-rf",
)  # fmt: skip
LETTERS = (
    "cafe\u0301", "caf\u00e9", "\u05e9\u05dc\u05d5\u05dd", "\u0645\u0631\u062d\u0628\u0627", "\U00020000", "\ufb01",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "a" + "\u0301" * 60, "\u200b", "\u202egnp", "\u2066x\u2069",
    "\u212b", "\ufeffx", "\ufffe", "\uffff", "\u1e9e", "\u0130i",
)  # fmt: skip
UNSEEN = ("\x01", "a\x1b[2J", "a\x7f", "\x85", "a\u2028b", "a\u2029b", "\x0b", "\x0c")

INJECTIONS = (
    *(before + text for before, text in product(("", " ", "'", '"', ";"), FORMULAS)),
    *(text + behind for text, behind in product((*MARKUP, *QUERIES), ("", "\n", ",=1", ' "'))),
    *(before + text + behind for before, text, behind in product(("", "x"), (*LETTERS, *UNSEEN), ("", "y", "\n"))),
)
"""Some four hundred texts."""

RUNS = ("=", "+", "-", "@", "\u2212")
"""What a spreadsheet takes for the beginning of a formula."""
CELL_ENDS = re.compile("[;\t\r\n]")
"""What ends a cell for a program that separates cells otherwise, or takes no quotes."""


def formulas_of_csv(text: str) -> Iterator[str]:
    """Cells that a spreadsheet would run, numbers aside, however it separates cells."""
    for row in csv.reader(io.StringIO(text, newline="")):
        for cell in row:
            if cell.startswith(("\t", "\r", "\n")):
                yield cell
            yield from (piece for piece in CELL_ENDS.split(cell) if _runs(piece) and not _is_number(piece))


def _runs(piece: str) -> bool:
    """Whether a program runs a cell that first normalises it and drops what has no width."""
    plain = unicodedata.normalize("NFKC", piece)
    return "".join(sign for sign in plain if unicodedata.category(sign)[0] not in "CZ").startswith(RUNS)


def formulas_of_workbook(content: bytes) -> Iterator[str]:
    """Cells of a workbook that are formulas."""
    refuse_malformed(content)
    for sheet in load_workbook(io.BytesIO(content)):
        yield from (str(cell.value) for row in sheet.iter_rows() for cell in row if cell.data_type == "f")


def refuse_malformed(content: bytes) -> None:
    """Read every part of a workbook as XML, which raises where one is not well-formed."""
    with ZipFile(io.BytesIO(content)) as parts:
        for name in parts.namelist():
            if name.endswith((".xml", ".rels")):
                Xml.fromstring(parts.read(name))  # noqa: S314 - the service wrote it


@dataclass(frozen=True)
class Column:
    """A field of what can be made, which takes any text."""

    listed: str
    """Where it is made."""
    name: str
    is_list: bool
    example: Mapping[str, Any]

    def body(self, text: str, number: int) -> dict[str, Any]:
        """Something else each time, with a text in this field."""
        own = {} if self.listed == "/v1/scenarios" else {SLUG.get(self.listed, "slug"): f"injected-{number}"}
        return {**self.example, **own, self.name: [text] if self.is_list else text}


SLUG = {"/v1/prices": "provider"}
"""What tells rows apart, where that is no slug."""


def columns(document: Mapping[str, Any]) -> list[Column]:
    """Every field of an own row or a scenario that is a text, or a list of them, and no choice and no name of a row."""
    found = []
    for path, methods in document["paths"].items():
        one = next((other for other in document["paths"] if other.startswith(f"{path}/{{") and other.endswith("}")), "")
        if "post" not in methods or "put" not in document["paths"].get(one, {}):
            continue
        content = methods["post"]["requestBody"]["content"][JSON_BODY]
        example = next(iter(content["examples"].values()))["value"]
        for name, schema in _resolved(document, content["schema"])["properties"].items():
            kinds = [one for option in schema.get("anyOf", [schema]) for one in _types(_resolved(document, option))]
            texts = [kind for kind in kinds if _is_text(kind) or _is_text(kind.get("items", {}))]
            if texts and name not in {"slug", "question", "grid_region", *SLUG.values()}:
                found.append(Column(path, name, texts[0]["type"] == "array", example))
    return found


def _resolved(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return document["components"]["schemas"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def _types(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A schema for each of its types."""
    kinds = schema.get("type")
    return [{**schema, "type": kind} for kind in kinds] if isinstance(kinds, list) else [schema]


def _is_text(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "string" and "enum" not in schema


def faults_of(
    send: Callable[..., httpx.Response], tried: Sequence[tuple[Column, Sequence[str]]]
) -> tuple[int, list[str]]:
    """How many texts the columns of one list took, and what was wrong with how they came back."""
    faults, made, held = [], [], set()
    for number, (column, text) in enumerate((column, text) for column, texts in tried for text in texts):
        answer = send("POST", column.listed, json=column.body(text, number))
        if answer.status_code == 201:
            made.append(answer.headers["location"])
            held.add(text)
            value = answer.json()[column.name]
            is_right = str(value[0] if column.is_list else value).startswith(unicodedata.normalize("NFC", text))
        else:
            is_right = answer.status_code in {409, 422} and not (len(text) > 3 and text in _said(answer))
        if not is_right:
            faults.append(f"{column.listed} {column.name} {text!a}: {answer.status_code} {answer.text[:300]}")
    listed = tried[0][0].listed
    faults += [f"{listed}.csv: {cell!a}" for cell in formulas_of_csv(send("GET", f"{listed}.csv").text)]
    faults += [f"{listed}.xlsx: {cell!a}" for cell in formulas_of_workbook(send("GET", f"{listed}.xlsx").content)]
    if made and listed == "/v1/scenarios":
        refuse_malformed(send("GET", f"{made[-1]}.ods").content)
        own = formulas_of_workbook(send("GET", f"{made[-1]}.xlsx").content)
        faults += [f"{made[-1]}: {cell!a}" for cell in own if cell in held]
    faults += [f"{path} cannot be removed" for path in made if not _is_removed(send, path)]
    return len(made), faults


def _said(answer: httpx.Response) -> str:
    return "".join(unquoted(error["message"]) + error["fix"] for error in answer.json()["errors"])


def _is_removed(send: Callable[..., httpx.Response], path: str) -> bool:
    return send("DELETE", path, headers={"if-match": "*"}).status_code == 204


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
