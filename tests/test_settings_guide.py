"""Pages about settings and workers, compared with the settings, bounds and commands that there are."""

import re
import shlex

import pytest

from service.settings import PREFIX, Settings
from tests.guide_pages import blocks_of
from tests.house.source import ROOT, SERVICE

GUIDE = SERVICE / "web" / "guide"
TEXT = (GUIDE / "settings.html").read_text(encoding="utf-8")
WORKERS = (GUIDE / "workers.html").read_text(encoding="utf-8")


def _default(name: str) -> str:
    """How the page writes the default of a setting: as the variable would hold it."""
    field = Settings.model_fields[name]
    if field.default_factory is not None:
        return "a file"
    if isinstance(field.default, bool):
        return str(field.default).lower()
    if isinstance(field.default, tuple):
        return ",".join("=".join(one) if isinstance(one, tuple) else one for one in field.default)
    return (
        ""
        if field.default is None
        else f"{field.default:g}"
        if isinstance(field.default, float)
        else str(field.default)
    )


def test_every_setting_is_listed_with_its_default() -> None:
    rows = re.findall(rf"<tr><td><code>{PREFIX}(\w+)</code></td><td>(.*?)</td>\n<td>(.*?)</td></tr>", TEXT)
    assert {name.lower(): default for name, default, _ in rows} == {
        name: _default(name) for name in Settings.model_fields
    }
    assert len(rows) == len(Settings.model_fields)
    assert all(len(meaning) > 20 for _, _, meaning in rows)


def test_defaults_are_read_as_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        if _default(name) not in {"", "a file"}:
            monkeypatch.setenv(PREFIX + name.upper(), _default(name))
    read = Settings(database_url="sqlite:////x.db")
    assert {name: getattr(read, name) for name in Settings.model_fields if name != "database_url"} == {
        name: field.default for name, field in Settings.model_fields.items() if name != "database_url"
    }


@pytest.mark.parametrize(
    "document", ["README.md", *(str(path.relative_to(ROOT)) for path in sorted(GUIDE.glob("*.html")))]
)
def test_documents_name_settings_that_there_are(document: str) -> None:
    named = set(re.findall(rf"\b{PREFIX}([A-Z][A-Z_]*[A-Z])\b", (ROOT / document).read_text(encoding="utf-8")))
    assert {name.lower() for name in named} <= Settings.model_fields.keys() | {"url", "key", "token"}


def test_commands_of_workers_take_the_options_that_are_shown() -> None:
    commands = [
        line for block in blocks_of(GUIDE / "workers.html") if block.kind == "shell" for line in block.text.splitlines()
    ]
    options = {
        word
        for command in commands
        for word in shlex.split(command)
        if word.startswith("--") and "traincost" in command
    }
    source = (SERVICE / "worker" / "command.py").read_text(encoding="utf-8")
    assert {"--once", "--max-idle"} <= options
    assert all(f'"{option}"' in source for option in options)
    assert "--runner" in source


def test_lease_of_workers_is_the_shipped_one() -> None:
    (seconds,) = re.findall(rf"<code>{PREFIX}LEASE_SECONDS</code> \((\d+)\)", WORKERS)
    assert float(seconds) == Settings.model_fields["lease_seconds"].default
