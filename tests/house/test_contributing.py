"""The map of the rooms in CONTRIBUTING, compared with the tree and with the layers of pyproject.toml."""

import re
import tomllib
from pathlib import Path

from tests.house.source import ROOT, SERVICE

CONTRIBUTING = (ROOT / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
NOT_ROOMS = {"__init__", "DECISIONS.md", "README.md", "py.typed"}


def _section(heading: str) -> str:
    return CONTRIBUTING.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def _table_below(heading: str) -> list[list[str]]:
    rows = [line for line in _section(heading).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[1:]]


def test_map_holds_every_room_and_no_other() -> None:
    named = {name for room, _ in _table_below("Rooms") for name in re.findall(r"`(\w+)`", room)}
    files = [path.relative_to(SERVICE) for path in SERVICE.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    rooms = {path.parts[0].removesuffix(".py") for path in files} - NOT_ROOMS
    assert named == rooms


def test_picture_of_the_rooms_is_that_of_the_import_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = [contract["layers"] for contract in contracts if contract.get("containers") == ["service"]]
    (picture,) = re.findall(r"```\n(.*?)\n```", _section("Rooms"), re.DOTALL)
    assert picture.splitlines() == layers


def test_every_path_exists() -> None:
    paths = re.findall(r"`((?:service|tests|migrations|openapi|\.ci)/[\w./-]*)`", CONTRIBUTING)
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", CONTRIBUTING) if not link.startswith("http")]
    assert paths
    assert [name for name in paths if not (ROOT / name).exists()] == []
    assert [name for name in links if not (ROOT / ".github" / name).resolve().exists()] == []


def test_every_row_names_what_to_touch_and_what_fails() -> None:
    rows = _table_below("Where to add what")
    assert len(rows) > 20
    assert all(len(row) == 3 and all(row) for row in rows)


def test_tables_that_take_rows_exist() -> None:
    for name in ("precision.json", "stacks.json"):
        assert f"`{name}`" in CONTRIBUTING
        assert Path(SERVICE / "estimator" / "software" / name).is_file()


def test_commands_are_those_of_the_readme() -> None:
    assert "\npip install -e '.[test]' && pytest\n" in CONTRIBUTING


def test_every_term_of_the_glossary_has_a_meaning_and_a_source() -> None:
    lines = (SERVICE / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")][1:]
    assert len(rows) >= 40
    assert [row[0].lower() for row in rows] == sorted({row[0].lower() for row in rows})
    assert all(len(row) == 3 and all(row) for row in rows)
    paths = re.findall(r"`(service/[\w./]+)`", "".join(row[2] for row in rows))
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_room_and_every_feature_has_a_readme_whose_files_exist() -> None:
    rooms = [path for folder in (SERVICE, SERVICE / "features") for path in folder.iterdir() if _is_package(path)]
    for room in rooms:
        text = (room / "README.md").read_text(encoding="utf-8")
        assert text.startswith("# "), room
        named = [
            name for name in re.findall(r"`((?:service/|tests/|\.\./)[\w./]+)`", text) if "." in name or "/" in name
        ]
        assert [name for name in named if not any((base / name).exists() for base in (ROOT, room))] == [], room


def _is_package(path: Path) -> bool:
    return path.is_dir() and path.name not in {"__pycache__", "features"} and any(path.glob("*"))


def test_every_path_of_the_decisions_exists() -> None:
    text = (SERVICE / "DECISIONS.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:service|tests)/[\w./]+)`", text)
    assert len(paths) > 5
    assert [path for path in paths if not (ROOT / path).exists()] == []
