"""Public files of tools are read as a hand-made key says, or refused with the code that it names."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from service.answers.exports import Imported
from service.errors import Refused
from service.features.exports.exports import import_file

FOLDER = Path(__file__).parent / "public"
KEY: dict[str, list[dict[str, Any]]] = tomllib.loads((FOLDER / "key.toml").read_text(encoding="utf-8"))
ROWS = [pytest.param(tool, row, id=row["file"]) for tool, rows in KEY.items() for row in rows]
LICENCES = ("Apache-2.0", "MIT", "BSD-3-Clause")
FEWEST = 8
"""Files of each tool."""
FEWER = {"megatron-yaml": 4}
"""Files of tools of which the public ones are versions of one."""


def read(row: Mapping[str, Any]) -> Imported:
    """A file of the key, with those beside it and without its format."""
    files = {name: (FOLDER / file).read_text(encoding="utf-8") for name, file in row.get("beside", {}).items()}
    return import_file(None, (FOLDER / row["file"]).read_text(encoding="utf-8"), files)


def value_at(imported: Imported, path: str) -> Any:
    found: Any = imported
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else getattr(found, part)
    return found


@pytest.mark.parametrize(("tool", "row"), ROWS)
def test_a_public_file_is_read_as_its_key_says(tool: str, row: dict[str, Any]) -> None:
    if "refused" in row:
        with pytest.raises(Refused) as caught:
            read(row)
        (problem,) = caught.value.problems
        assert problem.code == row["refused"]
        assert re.match(r"line \d+, column \d+: ", problem.message)
        assert problem.fix
        return
    imported = read(row)
    assert imported.format == tool
    assert {path: value_at(imported, path) for path in row["expected"]} == row["expected"]
    assert sorted(one.name for one in imported.not_understood) == row.get("not_understood", [])


def _texts() -> Iterator[str]:
    for rows in KEY.values():
        for row in rows:
            yield from (row["file"], *row.get("beside", {}).values())


def test_every_text_is_in_the_key_with_its_source_and_a_licence_that_lets_it_be_kept() -> None:
    kept = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*") if path.is_file()} - {"key.toml"}
    assert kept == {*_texts()}
    rows = [row for rows in KEY.values() for row in rows]
    assert [row["file"] for row in rows if not re.search(r"/.+@[0-9a-f]{40} .", row["source"])] == []
    assert {row["licence"] for row in rows} <= {*LICENCES}
    assert {tool for tool, rows in KEY.items() if len(rows) < FEWER.get(tool, FEWEST)} == set()
