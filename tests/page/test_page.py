"""The page in a real browser: paste, read, move, search, export and share.

Every test also fails on a complaint of the browser and on a request to another host.
"""

import html
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.validation.quantities import number_of
from tests.house.source import SERVICE
from tests.live import bearer, serving
from tests.page.browser import Sight

CONFIG = {
    "model_type": "qwen3", "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
    "tie_word_embeddings": True, "rope_scaling": None,
}  # fmt: skip


def _paste(sight: Sight) -> None:
    sight.page.click("#paste summary")
    sight.page.fill("#input-config", json.dumps(CONFIG))
    sight.page.locator("#pasted").wait_for()
    sight.answered()


def _field(sight: Sight, name: str) -> str:
    return str(sight.page.locator(f"#input-{name}").input_value())


def _search(sight: Sight) -> None:
    sight.page.click("#tab-plans")
    for kept in ("tensor", "pipeline", "zero_stage"):  # the best of these count embedding and loss as layers
        sight.page.check(f"#keep-{kept}")
    sight.page.click("#plan-find")


def test_it_opens_with_an_answer(sight: Sight) -> None:
    assert sight.text("#verdict-word") == "Fits"
    assert "H100 SXM5 80GB" in sight.text("#verdict-text")
    assert sight.text("#parameters") == "8.03B parameters"
    assert len(sight.bars()) == 2
    assert all("of 79.1 GiB usable; weights" in bar for bar in sight.bars())
    assert sight.page.locator("#figures .number").count() == 8


def test_a_pasted_config_is_counted_to_the_unit(sight: Sight) -> None:
    _paste(sight)
    assert sight.text("#verdict-word") == "Fits"
    sight.page.click("#parameters .number")
    sight.page.locator("#explanation .exact").wait_for()
    assert sight.text("#explanation .exact") == "4.0225 billion"
    assert sight.page.locator("#explanation .exact").get_attribute("title") == "exactly 4022468096"


def test_a_config_that_is_none_is_refused_beside_it(sight: Sight) -> None:
    sight.page.click("#paste summary")
    for text, said in (("{", "this is no JSON"), ('{"hidden_size": 64}', "it names no model_type")):
        sight.page.fill("#input-config", text)
        assert said in sight.text("#fault-config")


def test_a_dropped_config_is_taken(sight: Sight) -> None:
    sight.page.evaluate(
        """text => {
            const held = new DataTransfer();
            held.items.add(new File([text], "config.json"));
            document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: held, bubbles: true, cancelable: true }));
        }""",
        json.dumps(CONFIG),
    )
    sight.page.locator("#pasted").wait_for()
    assert "qwen3" in sight.text("#pasted")


def test_a_slider_moves_the_bars(sight: Sight) -> None:
    before = sight.bars()
    sight.page.focus("#slider-micro_batch")
    sight.page.keyboard.press("ArrowRight")
    sight.answered()
    assert _field(sight, "micro_batch") == "2"
    assert len(sight.bars()) == len(before)
    assert all(one != other for one, other in zip(before, sight.bars(), strict=True))


def test_what_does_not_fit_says_what_would_help(sight: Sight) -> None:
    sight.type_in("#input-model", "llama-3.1-70b")
    sight.answered()
    assert sight.text("#verdict-word") == "Does not fit"
    assert "missing" in sight.text("#verdict-text")
    assert sight.page.locator("#tips li").count() >= 3
    assert sight.page.locator(".total.over").count() == 2


def test_a_refusal_says_what_to_do(sight: Sight) -> None:
    sight.type_in("#input-tensor", "3")
    sight.answered()
    assert sight.text("#verdict-word") == "No answer"
    assert "does not divide" in sight.text("#verdict-text")
    sight.type_in("#input-tensor", "4")
    sight.answered()
    assert sight.text("#verdict-word") == "Fits"
    sight.type_in("#input-sequence_length", "many")
    assert sight.page.locator("#input-sequence_length").get_attribute("aria-invalid") == "true"


@pytest.mark.parametrize(
    ("name", "text"), [("sequence_length", "8k"), ("training_tokens", "200B"), ("sequence_length", "16 k")]
)
def test_what_is_typed_means_what_json_means(name: str, text: str, sight: Sight) -> None:
    sight.type_in(f"#input-{name}", text)
    asked = f"{name}={number_of(name, text.replace(' ', ''))}"
    sight.page.wait_for_function("asked => location.hash.split('&').includes(asked)", arg=asked)
    sight.answered()


@pytest.mark.parametrize("text", ["10k", "1,5", "8x", "1,000"])
def test_a_length_with_several_readings_is_marked(text: str, sight: Sight) -> None:
    sight.type_in("#input-sequence_length", text)
    assert sight.page.locator("#input-sequence_length").get_attribute("aria-invalid") == "true"


def test_every_number_opens_its_explanation_and_gives_the_focus_back(sight: Sight) -> None:
    numbers = sight.page.locator("#view-answer .number")
    assert numbers.count() > 25
    for place in range(numbers.count()):
        numbers.nth(place).click()
        sight.page.locator("#explanation-text h3").first.wait_for()
        assert "Equation" in sight.text("#explanation-text"), numbers.nth(place).get_attribute("data-path")
        sight.page.keyboard.press("Escape")
        assert numbers.nth(place).evaluate("node => node === document.activeElement")


def test_an_explanation_leads_to_those_of_its_inputs_and_back(sight: Sight) -> None:
    sight.page.click("[data-path='totals.cost_usd.value'] >> nth=0")
    sight.page.locator("#explanation .worked").wait_for()
    assert sight.text("#explained") == "Cost"
    assert re.fullmatch(r"[\d,.]+ GPU-h × \$2\.50/GPU-h = \$[\d,]+", sight.text("#explanation .worked"))
    for ref, label in (("totals.gpu_hours.value", "GPU-hours"), ("step.step_seconds.value", "Time of a step")):
        sight.page.click(f"#explanation [data-ref='{ref}']")
        assert sight.text("#explained") == label
    sight.page.click("#explanation [data-ref='step.parts.gemm.seconds']")
    assert sight.page.locator("#explanation .sources a").count() > 0
    for label in ("Time of a step", "GPU-hours", "Cost"):
        sight.page.click("#explanation-back")
        assert sight.text("#explained") == label
    assert sight.page.locator("#explanation-back").is_hidden()
    sight.page.keyboard.press("Escape")


def test_bytes_are_told_in_either_unit(sight: Sight) -> None:
    sight.page.select_option("#input-units", "si")
    assert "84.9 GB" in sight.text("#usable")
    sight.page.select_option("#input-units", "binary")
    assert "79.1 GiB" in sight.text("#usable")


@pytest.mark.timeout(120)
def test_a_plan_is_searched_and_taken(sight: Sight) -> None:
    _search(sight)
    sight.page.locator("#plans tbody tr").first.wait_for(timeout=60_000)
    sight.page.locator("#pareto canvas").wait_for()
    for place in range(5):
        sight.page.click(f"#plans tbody tr >> nth=2 >> .number >> nth={place}")
        sight.page.locator("#explanation-text h3").first.wait_for()
        sight.page.keyboard.press("Escape")
    sight.page.click("#plans .use >> nth=1")
    sight.page.locator("#export-tools button").first.wait_for()
    sight.page.click("#tab-plans")
    step = sight.text("#plans tbody tr >> nth=0 >> .number >> nth=0")
    sight.page.click("#plans .use >> nth=0")
    sight.answered()
    assert sight.page.locator("#view-answer").is_visible()
    assert step in sight.text("#figures")
    assert sight.text("#verdict-word") == "Fits"


def test_a_plan_that_is_taken_can_be_changed_on(sight: Sight) -> None:
    sight.page.click("#tab-plans")
    sight.page.click("#plan-find")
    sight.page.locator("#plans .use").first.wait_for(timeout=60_000)
    sight.page.click("#plans .use >> nth=0")
    sight.answered()
    sight.type_in("#input-tensor", "4")
    sight.answered()
    assert sight.text("#verdict-word") in {"Fits", "At risk", "Does not fit"}


def test_plans_belong_to_the_question_of_their_search(sight: Sight) -> None:
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)

    sight.page.route("**/v1/plans", hold)
    with sight.page.expect_request("**/v1/plans"):
        _search(sight)
    sight.type_in("#input-model", "llama-3.2-1b")
    sight.type_in("#input-usd_per_gpu_hour", "9")
    sight.answered()
    held[0].continue_()
    sight.page.locator("#plans tbody tr").first.wait_for(timeout=60_000)
    assert sight.text("#plan-progress") == "The question has changed since this search."
    with sight.page.expect_request("**/v1/estimates?explain=true") as asking:
        sight.page.click("#plans tbody .number >> nth=0")
    body = asking.value.post_data_json
    assert (body["model"], body["price"]) == ("llama-3.1-8b", {"usd_per_gpu_hour": 2.5})
    sight.page.keyboard.press("Escape")
    told = [number.inner_text() for number in sight.page.locator("#plans tbody tr >> nth=0 >> .number").all()]
    sight.page.click("#plans .use >> nth=0")
    sight.page.locator("#view-answer").wait_for()
    sight.answered()
    assert _field(sight, "model") == "llama-3.1-8b"
    assert all(number in sight.text("#figures") for number in told)


def test_a_plan_that_cannot_be_taken_says_why(sight: Sight) -> None:
    sight.page.route("**/v1/memory", lambda route: route.fulfill(status=422, json={"detail": "ask again later"}))
    _search(sight)
    sight.page.click("#plans .use >> nth=0")
    sight.page.locator("#plan-progress:text-is('ask again later')").wait_for()
    assert sight.page.locator("#view-plans").is_visible()


def test_an_export_is_the_file_of_the_service(sight: Sight, tmp_path: Path) -> None:
    sight.page.click("#tab-export")
    sight.page.click("#export-sbatch")
    with sight.page.expect_download() as waiting:
        sight.page.click("#export-save")
    waiting.value.save_as(tmp_path / "file")
    asked = json.loads(str(sight.page.locator("#export-body").text_content()))
    told = httpx.post(f"http://{sight.address}/v1/exports/sbatch", json=asked).json()
    assert waiting.value.suggested_filename == told["file_name"]
    assert (tmp_path / "file").read_text(encoding="utf-8") == told["content"]


def test_an_export_that_loses_much_is_written_all_the_same_where_the_reader_says_so(sight: Sight) -> None:
    sight.page.click("summary:has-text('More')")
    sight.page.select_option("#input-method", "lora")
    sight.answered()
    sight.page.click("#tab-export")
    sight.page.click("#export-megatron-lm")
    sight.page.locator("#export .fault").wait_for()
    assert "allow_loss" in sight.text("#export .fault")
    assert sight.page.locator("#export-file").count() == 0
    sight.page.click("#export-allow")
    sight.page.locator("#export-file").wait_for()
    assert "recipe.method: " in sight.text("#export-file")
    assert "By what the file does not hold (recipe.method" in sight.text("#export")
    sight.page.click("#export-megatron-bridge")
    sight.page.locator("#export-allow").wait_for()


def test_a_shared_address_opens_in_the_same_state(sight: Sight) -> None:
    _paste(sight)
    sight.page.select_option("#input-machine", "a100-sxm4-80gb")
    sight.type_in("#input-gpus", "16")
    sight.type_in("#input-training_tokens", "1.5T")
    sight.page.select_option("#input-recompute", "full")
    sight.page.select_option("#input-units", "si")
    sight.page.click("#share")
    sight.answered()
    held = {"bars": sight.bars(), "figures": sight.text("#figures"), "verdict": sight.text("#verdict")}
    address = sight.page.url
    assert len(address) < 700
    sight.open(address.removeprefix(f"http://{sight.address}"))
    assert held == {"bars": sight.bars(), "figures": sight.text("#figures"), "verdict": sight.text("#verdict")}
    assert [_field(sight, name) for name in ("training_tokens", "recompute", "units")] == ["1.5T", "full", "si"]
    assert "config.json of a qwen3" in sight.text("#pasted")


def test_a_shared_search_searches_again(sight: Sight) -> None:
    sight.page.click("#tab-plans")
    sight.page.select_option("#plan-objective", "cost")
    sight.page.check("#keep-tensor")
    sight.page.click("#share")
    sight.answered()
    sight.open(sight.page.url.removeprefix(f"http://{sight.address}"))
    sight.page.locator("#plans tbody tr").first.wait_for(timeout=60_000)
    assert sight.page.locator("#plan-objective").input_value() == "cost"
    assert sight.page.locator("#keep-tensor").is_checked()


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
