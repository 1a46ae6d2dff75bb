"""Databases that earlier versions wrote, upgraded: every row stays, is answered over HTTP and may be changed."""

import pytest
from sqlalchemy import Engine

from tests.store.earlier import faults_of_upgrade, put_back, recording, recordings

EVERY = 25
"""One of so many rows of the former catalogue is asked about; `.ci/proof upgrades` asks about all."""


@pytest.mark.parametrize("revision", recordings())
def test_everything_that_an_earlier_version_wrote_is_kept(engine: Engine, database_url: str, revision: str) -> None:
    recorded = recording(revision)
    put_back(engine, recorded)
    assert faults_of_upgrade(engine, database_url, recorded, EVERY) == []


def test_what_is_missing_after_an_upgrade_is_found(engine: Engine, database_url: str) -> None:
    recorded = recording("0001")
    put_back(engine, recorded)
    recorded.rows["gpus"].insert(0, {**recorded.rows["gpus"][0], "slug": "lost"})
    recorded.answers.append(["/v1/gpus/lost", "", {"slug": "lost"}])
    assert len(faults_of_upgrade(engine, database_url, recorded, EVERY)) >= 2
