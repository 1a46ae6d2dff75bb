"""A service and a browser for the tests of the page, and each test a page that has just been opened."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.live import serving
from tests.page.browser import Sight, chromium


@pytest.fixture(scope="session")
def service_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("page")) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Closed with each file: while it is driven, no other event loop runs in its thread, and other tests need one."""
    with chromium() as found:
        yield found


@pytest.fixture
def sight(browser: Any, request: pytest.FixtureRequest) -> Iterator[Sight]:
    address = request.getfixturevalue("service_address")  # not started where there is no browser
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    found = Sight(context, address)
    found.open()
    yield found
    context.close()
    assert found.complaints == []
    assert found.foreign == []
