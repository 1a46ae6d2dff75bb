"""The tree holds only agreed entries, and no words from outside.

Needles are written with a bar inside, so that this file does not hold what it looks for.
"""

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.house.source import ROOT, each_of, shown

ENTRIES = {
    ".ci", ".dockerignore", ".github", ".gitignore", "Dockerfile", "LICENSE", "README.md", "docker-compose.yml",
    "migrations", "openapi", "pyproject.toml", "requirements.lock", "service", "tests",
}  # fmt: skip
"""What stands at the top; documents live in the rooms they describe."""

IGNORED = [line.strip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines() if line]

FOREIGN = [
    needle.replace("|", "")
    for needle in (
        *(
            "py|pi.org",
            "python|hosted.org",
            "npm|js.org",
            "npm|js.com",
            "ana|conda.org",
            "index|-url",
            "js|delivr",
            "un|pkg.com",
        ),
        *("/wo|rk/", "/ro|ot/", "/ho|me/", "/tm|p/venv", "/op|t/wheels", "/op|t/pypi"),
        *("assis|tant", "cl|aude", "anth|ropic", "chat|gpt", "sub|agent", "work|place", "the br|ief", "iss|ue #"),
        *("design|.md", "../sha|red", "to|do:", "fix|me"),
    )
]
"""Package registries and their mirrors, paths of one machine, words of the place of work, things left undone."""


def _is_ignored(name: str) -> bool:
    return name == ".git" or any(fnmatch(name, pattern) for pattern in IGNORED)


def _files(folder: Path) -> list[Path]:
    """Every file of the tree that git would keep."""
    found: list[Path] = []
    for entry in sorted(folder.iterdir()):
        if not _is_ignored(entry.name):
            found += _files(entry) if entry.is_dir() else [entry]
    return found


FILES = _files(ROOT)


def test_only_agreed_entries_stand_at_the_top() -> None:
    entries = {entry.name for entry in ROOT.iterdir() if not _is_ignored(entry.name)}
    assert entries == ENTRIES


@each_of(FILES)
def test_file_holds_nothing_foreign(path: Path) -> None:
    content = path.read_bytes().lower()
    found = [needle for needle in FOREIGN if needle.encode() in content]
    assert not found, f"holds {found}"


def test_documents_live_in_the_rooms_they_describe() -> None:
    documents = {shown(path) for path in FILES if path.suffix in {".md", ".rst"} and path.name != "README.md"}
    guide = {name for name in documents if name.startswith("service/web/guide/")}
    assert documents - guide == {".github/CONTRIBUTING.md", "service/DECISIONS.md"}


def _locked() -> dict[str, list[str]]:
    """Version of every package of the lock file, with its hashes; a package may stand there once a Python version."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    return {line.split(" ")[0]: re.findall(r"--hash=(sha256:[0-9a-f]{64})", line) for line in lines}


def test_lock_file_holds_a_hash_for_every_package_and_no_address() -> None:
    assert "://" not in (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert [name for name, hashes in _locked().items() if not hashes] == []


def test_lock_file_satisfies_every_dependency() -> None:
    versions: dict[str, list[str]] = {}
    for pinned in _locked():
        name, _, version = pinned.partition("==")
        versions.setdefault(name, []).append(version)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for dependency in map(Requirement, project["dependencies"]):
        locked = versions[canonicalize_name(dependency.name)]
        assert all(dependency.specifier.contains(version) for version in locked), f"{dependency}: {locked}"


def test_licence_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "9. Accepting Warranty or Additional Liability." in text
    assert "END OF TERMS AND CONDITIONS" in text
