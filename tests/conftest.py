"""Databases for tests, of both kinds, each new and empty.

PostgreSQL is TRAINCOST_TEST_DATABASE_URL (a server on which databases may be made), else one started from the
test extra's own binaries. Without either its tests are skipped, or fail where TRAINCOST_REQUIRE_REAL=1 asks for it.
"""

from collections.abc import Iterator

import pytest

from tests.databases import missing, serving


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """The URL of a PostgreSQL server."""
    with serving() as (url, reason):
        if url is None:
            missing(f"PostgreSQL cannot be started here: {reason}")
        yield url
