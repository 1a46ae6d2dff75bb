"""The page asks for a key where the service needs one, and keeps it for its tab."""

from pathlib import Path
from typing import Any

from tests.live import bearer, serving
from tests.page.browser import Sight


def test_a_locked_service_is_asked_with_the_reader_s_key(browser: Any, tmp_path: Path) -> None:
    key = bearer(tmp_path, "read")["Authorization"].removeprefix("Bearer ")
    context = browser.new_context()
    with serving(tmp_path) as address:
        sight = Sight(context, address)
        sight.page.goto(f"http://{address}/")
        for given, said in (("tck_none.none", "asks for a key"), (key, "not known here")):
            sight.page.locator("#key-fault", has_text=said).wait_for()
            sight.page.fill("#input-key", given)
            sight.page.press("#input-key", "Enter")
        sight.page.locator("#stages .bar").first.wait_for(state="attached")
        assert not sight.page.locator("#key").is_visible()
        assert key not in sight.page.url
        sight.open()
        sight.page.click("#tab-plans")
        sight.page.check("#keep-zero_stage")
        sight.page.click("#plan-find")
        sight.page.locator("#plans tbody tr").first.wait_for(timeout=60_000)
        context.close()
    assert [line for line in sight.complaints if "401" not in line] == []
    assert sight.foreign == []
