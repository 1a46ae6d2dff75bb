"""A few operations, tried with what the contract allows and what it rules out; `.ci/proof contract` tries them all."""

from pathlib import Path

from tests.contract.conforming import run
from tests.live import bearer, serving
from tests.needing import needs

OPERATIONS = "^(getHealth|getRegion|listGpus|getCell|getCellReason|createRegion|deleteRegion|createFlop)$"


@needs("schemathesis")
def test_the_service_does_what_its_contract_says(tmp_path: Path) -> None:
    headers = bearer(tmp_path, "admin")
    with serving(tmp_path) as address:
        options = ("--phases=examples,fuzzing", "--max-examples=8", "--seed=1")
        done = run(address, headers, tmp_path, *options, f"--include-operation-id-regex={OPERATIONS}")
    assert done.is_sound, done.said[-5000:]
    assert done.cases >= 40
