"""Files of the pages: known to the service, and as published where others wrote them."""

import hashlib
import json
import re

from service.estimator.memory.memory import StageBytes
from service.validation.flat import flat_fields
from tests.house.source import SERVICE

WEB = SERVICE / "web"
VENDORED = WEB / "vendor"
MODULES = sorted((WEB / "page").glob("*.js"))

NOT_A_LINE = {"in_flight", "host", "pools", "copied_peak", "settled_copied_peak"}
"""Fields of StageBytes that are no bytes on a GPU, or part of another."""


def test_vendored_files_are_those_that_were_published() -> None:
    held = json.loads((VENDORED / "manifest.json").read_text(encoding="utf-8"))["files"]
    named = {"manifest.json"}
    for row in held:
        assert hashlib.sha256((VENDORED / row["file"]).read_bytes()).hexdigest() == row["sha256"]
        assert re.fullmatch(r"\d+\.\d+\.\d+", row["version"])
        assert row["licence"] == "Apache-2.0"
        assert all((VENDORED / name).stat().st_size > 0 for name in row["licence_files"])
        named |= {row["file"], *row["licence_files"]}
    assert {path.name for path in VENDORED.iterdir()} == named


def test_modules_import_what_there_is() -> None:
    for path in MODULES:
        for names, module in re.findall(
            r'import (?:\{([^}]*)\}|\* as \w+) from "\./([\w.]+)"', path.read_text(encoding="utf-8")
        ):
            text = (WEB / "page" / module).read_text(encoding="utf-8")
            for name in filter(None, (one.split(" as ")[0].strip() for one in names.split(","))):
                assert re.search(rf"export (?:async )?(?:const|function\*?|class) {name}\b", text), (path.name, name)


def test_what_a_script_looks_for_stands_in_the_page() -> None:
    page = (WEB / "index.html").read_text(encoding="utf-8")
    scripts = "".join(path.read_text(encoding="utf-8") for path in MODULES)
    looked_for = set(re.findall(r'\bplace\("([\w-]+)"\)', scripts))
    made = set(re.findall(r'\bid: "([\w-]+)"', scripts)) | set(re.findall(r'\bid="([\w-]+)"', page))
    assert len(looked_for) > 40
    assert looked_for - made == set()


def test_fields_of_the_page_are_fields_of_a_question() -> None:
    fields = re.findall(r'\{ name: "(\w+)", part: "(\w+)"', (WEB / "page" / "fields.js").read_text(encoding="utf-8"))
    known = {(name, field.path[0]) for name, field in flat_fields().items()}
    assert len(fields) > 20
    assert set(fields) <= known


def test_every_line_of_memory_has_a_colour() -> None:
    coloured = set(re.findall(r'"(\w+)"', (WEB / "page" / "kinds.js").read_text(encoding="utf-8")))
    assert set(StageBytes.__dataclass_fields__) - NOT_A_LINE - coloured == set()
