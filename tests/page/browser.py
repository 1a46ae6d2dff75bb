"""A browser for tests: Chromium, driven by Playwright, with its console and errors."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.needing import CHROMIUM, need, tool

AXE = ("axe", "node_modules", "axe-core", "axe.min.js")
"""The checker of accessibility, in the folder that .ci/tools makes."""

SERIOUS = {"serious", "critical"}


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser without a window; skips the test where there is none, or fails it where nothing may be skipped."""
    need("chromium", "playwright")
    from playwright.sync_api import sync_playwright

    program = next(found for name in CHROMIUM if (found := shutil.which(name)))
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


class Sight:
    """The page as a reader has it before them, and what the browser says of it."""

    def __init__(self, context: Any, address: str) -> None:
        self.address = address
        self.page = context.new_page()
        self.complaints: list[str] = []
        self.foreign: list[str] = []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._asked)

    def _heard(self, message: Any) -> None:
        refused = "422" in message.text  # the browser says so of every refusal, which the page shows
        if message.type in {"error", "warning"} and not refused:
            self.complaints.append(message.text)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((f"http://{self.address}/", "blob:", "data:")):
            self.foreign.append(request.url)

    def open(self, path: str = "/") -> None:
        """Open an address of the service, until its answer stands there."""
        self.page.goto("about:blank")
        self.page.goto(f"http://{self.address}{path}")
        self.page.locator("#stages .bar").first.wait_for(state="attached")

    def bars(self) -> list[str]:
        """What the bars of all stages say."""
        return [str(bar.get_attribute("aria-label")) for bar in self.page.locator("#stages .bar").all()]

    def text(self, selector: str) -> str:
        """The words of a part of the page."""
        return str(self.page.locator(selector).inner_text())

    def type_in(self, field: str, value: str) -> None:
        """Write into an input and leave it."""
        self.page.fill(field, value)
        self.page.press(field, "Tab")

    def answered(self) -> None:
        """Wait until the answer is that of the question."""
        self.page.locator("body[data-asking='0']").wait_for()

    def violations(self, *rules: str) -> list[str]:
        """What axe finds serious in what is shown now."""
        if not self.page.evaluate("typeof axe === 'object'"):
            self.page.evaluate(_axe())
        options = {"runOnly": list(rules)} if rules else {}
        found = self.page.evaluate("options => axe.run(options)", options)["violations"]
        return [f"{one['id']}: {one['nodes'][0]['target']}" for one in found if one["impact"] in SERIOUS]


def _axe() -> str:
    need("axe")
    return tool(*AXE).read_text(encoding="utf-8")
