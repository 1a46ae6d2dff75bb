"""Under faults of databases and networks nothing is lost, doubled or answered 500, and no restart is needed.

Each fault once and for a moment here; .ci/proof outages takes longer.
"""

from pathlib import Path

import pytest

from tests.outage_faults import on_postgresql, on_sqlite
from tests.outages import UNREADY, Figures

SECONDS = 0.6


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_faults_lose_nothing_and_pass(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    seen: list[Figures] = []
    if kind == "postgresql":
        request.getfixturevalue("postgresql_server")  # skipped, or failed, where none can be started
        outages, found = on_postgresql(SECONDS, 1, seen.append)
    else:
        outages, found = on_sqlite(tmp_path, SECONDS, 1, seen.append)
    assert found == seen
    assert [(one.fault, one.wrong) for one in found if one.wrong] == []
    assert {one.fault for one in found} & UNREADY
    assert (outages.lost, outages.doubled) == (0, 0)
    assert len(outages.acknowledged) >= 10
