"""spectral and redocly find neither errors nor warnings in the contract.

Each reads a document with mistakes too, so that one that finds nothing anywhere would be noticed.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from service.openapi.document import COMMITTED
from tests.contract.tools import modules, output_of

CONTRACT, MISTAKEN = "contract.json", "mistaken.json"

WRONG_EXAMPLE = {"schema": {"type": "string"}, "example": 7}
UNNAMED = {"responses": {"200": {"description": "A number.", "content": {"text/plain": WRONG_EXAMPLE}}}}
MISTAKES = {"openapi": "3.1.0", "info": {"title": "", "version": ""}, "paths": {"/number": {"get": UNNAMED}}}
"""An operation without a name, with an example of another type."""

RULES = f"""\
extends: ["spectral:oas"]
overrides:
  - files: ["{CONTRACT}"]
    rules: {{oas3-valid-media-example: off}}
"""
"""The examples of the contract are left to redocly and to test_examples.py: spectral takes 17 seconds for them."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    modules()
    made = tmp_path_factory.mktemp("contract")
    (made / CONTRACT).write_bytes(COMMITTED.read_bytes())
    (made / MISTAKEN).write_text(json.dumps(MISTAKES), encoding="utf-8")
    return made


def test_spectral_finds_nothing(folder: Path) -> None:
    (folder / "ruleset.yaml").write_text(RULES, encoding="utf-8")
    asked = ("lint", CONTRACT, MISTAKEN, "--ruleset=ruleset.yaml", "--format=json", "--quiet")
    found: list[dict[str, Any]] = json.loads(output_of("spectral", *asked, folder=folder))
    assert [one for one in found if not one["source"].endswith(MISTAKEN)] == []
    assert {one["code"] for one in found} >= {"oas3-valid-media-example", "operation-operationId"}


def test_redocly_finds_nothing(folder: Path) -> None:
    asked = ("lint", CONTRACT, MISTAKEN, "--extends=recommended", "--format=json")
    output = output_of("redocly", *asked, folder=folder)
    found, end = json.JSONDecoder().raw_decode(output)
    assert found["problems"] == []
    mistakes = json.loads(output[end:])["problems"]
    assert {one["ruleId"] for one in mistakes} >= {"no-invalid-media-type-examples", "operation-operationId"}
