"""The Dockerfile and docker-compose.yml as tests read them: stages, instructions, services with what YAML merges."""

import re
from typing import Any

import yaml

from service.settings import PREFIX, Settings
from tests.house.source import ROOT

OF_WORKERS = {"TRAINCOST_URL", "TRAINCOST_TOKEN"}
"""What a worker reads: where the service is, and the key that it shows there."""
SETTINGS = {PREFIX + name.upper() for name in Settings.model_fields}


def dockerfile() -> list[tuple[str, str]]:
    """Every instruction of the Dockerfile with its arguments, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, " ".join(rest.split())) for word, _, rest in (line.partition(" ") for line in lines)]


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage, those of the stage that it begins with first."""
    found: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for word, rest in dockerfile():
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            found[name] = list(found.get(base, []))
        elif name:
            found[name].append((word, rest))
    return found


def arguments(instruction: str, stage: str = "api") -> list[str]:
    """The arguments of each such instruction of a stage."""
    return [rest for word, rest in stages()[stage] if word == instruction]


def compose() -> dict[str, Any]:
    """What docker-compose.yml holds."""
    read = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    assert isinstance(read, dict)
    return read


def filled(value: str) -> str:
    """A compose value with the default of each ${NAME:-default}."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)
