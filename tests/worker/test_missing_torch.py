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


def test_an_image_is_told_what_the_extra_would_bring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(devices, "CHECKOUT", tmp_path)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert [str(devices.missing_torch()).rpartition("pip install ")[2]] == [f"'{one}'" for one in extras["measure"]]
