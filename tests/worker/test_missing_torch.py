"""Does the command that a worker names where torch is missing add it?"""

import importlib.util
import tomllib
from pathlib import Path

import pytest

from service.worker import devices
from tests.house.source import ROOT


@pytest.fixture(autouse=True)
def _no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)


def test_a_checkout_is_told_its_own_extra_which_brings_torch() -> None:
    assert str(devices.missing_torch()).endswith("pip install '.[measure]'")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert any(needed.startswith("torch") for needed in extras["measure"])


def test_an_installed_release_is_told_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(devices, "CHECKOUT", tmp_path)
    assert str(devices.missing_torch()).endswith("pip install 'traincost[measure]'")
