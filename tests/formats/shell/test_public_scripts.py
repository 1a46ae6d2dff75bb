"""Public scripts are read as a hand-made key says, or refused with the code and the line that it names."""

import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from service.answers.exports import Imported
from service.catalogue import shipped_catalogue
from service.errors import Refused
from service.features.exports.exports import import_file

FOLDER = Path(__file__).parent / "public"
ROWS: list[dict[str, Any]] = tomllib.loads((FOLDER / "key.toml").read_text(encoding="utf-8"))["script"]
LICENCES = {"Apache-2.0", "MIT", "BSD-3-Clause"}
FEWEST = {"first": 9, "second": 25}


def value_at(imported: Imported, path: str) -> Any:
    """The value at a path; a model's sizes are those of the row whose name stands for them."""
    found: Any = imported
    if isinstance(imported.model, str) and path.startswith("model."):
        found = {"model": shipped_catalogue().find_model(imported.model).row.model}
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else getattr(found, part)
    return "" if found is None else found


@pytest.mark.parametrize("row", ROWS, ids=[row["file"] for row in ROWS])
def test_a_public_script_is_read_as_its_key_says(row: dict[str, Any]) -> None:
    text = (FOLDER / row["file"]).read_text(encoding="utf-8")
    if "refused" in row:
        with pytest.raises(Refused) as caught:
            import_file("script", text)
        (problem,) = caught.value.problems
        assert problem.code == row["refused"]
        assert re.match(rf"line {row.get('line', '[0-9]+')}, column \d+: ", problem.message)
        assert problem.fix
        return
    imported = import_file("script", text)
    assert imported.format == row["format"]
    assert {path: value_at(imported, path) for path in row["expected"]} == row["expected"]
    named = {one.name for one in imported.not_understood}
    assert named >= {*row.get("among", row.get("not_understood", []))}
    assert "among" in row or named == {*row["not_understood"]}


def test_every_script_has_its_source_and_a_licence_that_lets_it_be_kept() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {"key.toml", *(row["file"] for row in ROWS)}
    assert [row["file"] for row in ROWS if not re.search(r"/.+@[0-9a-f]{40} .", row["source"])] == []
    assert {row["licence"] for row in ROWS} <= LICENCES
    counts = Counter(row["half"] for row in ROWS)
    assert all(counts[half] >= fewest for half, fewest in FEWEST.items())
