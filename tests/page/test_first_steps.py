"""The first steps: each link is opened and shows the quoted text."""

import html
import re

import pytest

from tests.house.source import SERVICE
from tests.page.browser import Sight

GUIDE = (SERVICE / "web" / "guide" / "page.html").read_text(encoding="utf-8")
STEPS = [
    (html.unescape(link), said)
    for link, said in re.findall(r'href="(/#[^"]+)"[^<]*</a>.*?<q>([^<]+)</q>', GUIDE, flags=re.DOTALL)
]


def test_there_are_steps() -> None:
    assert len(STEPS) == GUIDE.count('href="/#') == 4


@pytest.mark.parametrize(("link", "said"), STEPS)
def test_a_step_says_what_is_quoted(sight: Sight, link: str, said: str) -> None:
    sight.page.goto("about:blank")
    sight.page.goto(f"http://{sight.address}{link}")
    sight.page.locator(f"#verdict:has-text('{said}'), #plan-progress:has-text('{said}')").first.wait_for()


def test_what_it_names_is_on_the_page(sight: Sight) -> None:
    names = set(re.findall(r"<em>([^<]+)</em>", GUIDE)) - {"Use this"}
    shown = sight.text("body")
    assert len(names) >= 7
    assert {name for name in names if name not in shown} == set()
