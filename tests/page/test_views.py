"""Charts and tables of the page, by keyboard, by screen reader and on every screen size."""

import csv
from pathlib import Path

import pytest

from service.evaluation.shipped import shipped_accuracy
from tests.page.browser import Sight

VIEWS = {
    "answer": "#stages .bar", "plans": "#plan-find", "timeline": "#timeline canvas", "compare": "#comparison tbody tr",
    "map": "#map-draw", "accuracy": "#accuracy tbody tr", "measure": "#check-start", "export": "#export-sbatch",
}  # fmt: skip
"""Each view and what stands there when it is ready."""


def _show(sight: Sight, view: str) -> None:
    sight.page.click(f"#tab-{view}")
    sight.page.locator(VIEWS[view]).first.wait_for(timeout=150_000)


def test_the_timeline_tells_both_steps(sight: Sight) -> None:
    _show(sight, "timeline")
    sight.page.click("#timeline details summary")
    told = sight.text("#timeline tbody")
    assert "first step, start" in told
    assert "later step, backward" in told
    assert "Reserved" in sight.text("#timeline thead")
    assert "The allocator reserves" in sight.text("#timeline")
    sight.page.select_option("#timeline-stage", "1")
    sight.page.locator("#timeline-chart[aria-label*='stage 1']").wait_for()


def test_machines_are_compared_and_dropped(sight: Sight) -> None:
    _show(sight, "compare")
    rows = sight.page.locator("#comparison tbody tr")
    assert rows.count() == 5
    sight.page.select_option("#compare-add", "cluster:dgx-h100")
    sight.answered()
    assert rows.count() == 6
    for row in range(6):
        sight.page.click(f"#comparison tbody tr >> nth={row} >> .number >> nth=0")
        sight.page.locator("#explanation-text h3").first.wait_for()
        sight.page.keyboard.press("Escape")
    sight.page.click("#compare-chips button >> nth=0")
    sight.answered()
    assert rows.count() == 5
    sight.page.check("#compare-published")
    sight.answered()
    assert rows.count() > 5
    assert "lambda" in sight.text("#comparison")


@pytest.mark.timeout(240)
def test_the_scaling_map_is_drawn_and_saved(sight: Sight, tmp_path: Path) -> None:
    sight.type_in("#input-model", "llama-3.2-1b")
    _show(sight, "map")
    sight.page.select_option("#map-most", "8")
    sight.page.click("#map-draw")
    sight.page.locator("#map-rest").wait_for(timeout=60_000)
    sight.page.locator("#map-stop").wait_for(state="hidden", timeout=120_000)
    assert sight.page.locator("#map tbody tr").count() == 4
    sight.page.click("#map tbody .number >> nth=0")
    sight.page.locator("#explanation-text h3").first.wait_for()
    sight.page.keyboard.press("Escape")
    with sight.page.expect_download() as waiting:
        sight.page.click("#map-rest button >> nth=0")
    waiting.value.save_as(tmp_path / "map.csv")
    with (tmp_path / "map.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["gpus"] for row in rows} == {"1", "2", "4", "8"}
    assert len(rows) > 100
    assert max(float(row["of_best_fraction"]) for row in rows) == 1
    assert all(0 < float(row["mfu_fraction"]) < 1 for row in rows)
    degrees = ("tensor", "pipeline", "context", "data")
    for row in rows:
        product = 1
        for name in degrees:
            product *= int(row[name])
        assert product == int(row["gpus"])


def test_accuracy_is_told_by_source(sight: Sight) -> None:
    _show(sight, "accuracy")
    board = shipped_accuracy().held_out
    assert board.mlperf is not None
    rows = [*board.classes, *board.sources, *board.worst, *board.mlperf.runs]
    assert sight.page.locator("#accuracy tbody tr").count() == len(rows)
    assert sight.text("#accuracy dt >> nth=0") == f"Step, {board.classes[0].memory_class}"
    assert "In sample" in sight.text("#accuracy > p")


@pytest.mark.parametrize(("scheme", "rules"), [("light", ()), ("dark", ("color-contrast",))], ids=("light", "dark"))
@pytest.mark.timeout(240)
def test_nobody_is_shut_out(sight: Sight, scheme: str, rules: tuple[str, ...]) -> None:
    """By all rules in light colours, and in dark ones by the rule that looks at colours."""
    sight.page.emulate_media(color_scheme=scheme)
    found: dict[str, list[str]] = {}
    for view in VIEWS:
        _show(sight, view)
        if view == "plans":
            sight.page.click("#plan-find")
            sight.page.locator("#plans tbody tr").first.wait_for(timeout=60_000)
        found[view] = sight.violations(*rules)
    _show(sight, "answer")
    sight.page.click("#figures .number >> nth=0")
    sight.page.locator("#explanation pre").first.wait_for()
    found["explanation"] = sight.violations(*rules)
    assert {view: violations for view, violations in found.items() if violations} == {}


def test_tabs_follow_the_arrows(sight: Sight) -> None:
    sight.page.focus("#tab-answer")
    for key, view in (("ArrowRight", "plans"), ("End", "export"), ("ArrowRight", "answer"), ("ArrowLeft", "export")):
        sight.page.keyboard.press(key)
        assert sight.page.locator(f"#tab-{view}").get_attribute("aria-selected") == "true"
        assert sight.page.locator(f"#tab-{view}").evaluate("node => node === document.activeElement")
        assert sight.page.locator(f"#view-{view}").is_visible()


@pytest.mark.parametrize("width", [360, 768, 1280, 3840])
def test_nothing_reaches_beyond_the_screen(sight: Sight, width: int) -> None:
    sight.page.set_viewport_size({"width": width, "height": 900})
    for view in VIEWS:
        _show(sight, view)
        assert sight.page.evaluate("document.documentElement.scrollWidth") <= width, view


def test_the_chart_library_is_loaded_only_where_one_is_drawn(sight: Sight) -> None:
    loaded = "performance.getEntriesByType('resource').filter(({ name }) => name.includes('/vendor/')).length"
    assert sight.page.evaluate(loaded) == 0
    _show(sight, "timeline")
    assert sight.page.evaluate(loaded) == 1


def test_embedded_it_is_the_answer_alone(sight: Sight) -> None:
    sight.open("/?embed=1#model=llama-3.1-8b&machine=cluster:dgx-h100&sequence_length=4096")
    assert not sight.page.locator("#question").is_visible()
    assert not sight.page.locator("header").is_visible()
    assert sight.page.locator("#figures").is_visible()
