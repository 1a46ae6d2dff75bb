"""The box for a sentence: its answer fills the form, parts say what was understood, and a choice changes one."""

from tests.page.browser import Sight


def _ask(sight: Sight, text: str) -> None:
    sight.page.fill("#input-sentence", text)
    sight.page.click("#sentence button")


def _field(sight: Sight, name: str) -> str:
    return str(sight.page.locator(f"#input-{name}").input_value())


def test_a_sentence_fills_the_form_and_shows_its_chips(sight: Sight) -> None:
    _ask(sight, "qwen2.5 0.5b on 4 H100, 10B tokens, seq 2k, rainbow, $3/h")
    sight.page.locator("#parts li").first.wait_for()
    sight.answered()
    fields = ("model", "machine", "gpus", "sequence_length", "training_tokens", "usd_per_gpu_hour", "global_batch")
    assert [_field(sight, name) for name in fields] == [
        *("qwen2.5-0.5b", "h100-sxm5-80gb", "4", "2048", "10B", "3", "2048")
    ]
    assert sight.text("#verdict-word") == "Fits"
    assert sight.text("#parts .not_understood") == "not understood: rainbow"
    assert "global batch 2,048" in " ".join(sight.page.locator("#parts .assumed").all_inner_texts())
    sight.page.select_option("#parts select[aria-label=gpu]", "H100 PCIe 80GB")
    sight.answered()
    assert _field(sight, "machine") == "h100-pcie-80gb"


def test_a_sentence_without_gpus_says_what_is_missing(sight: Sight) -> None:
    _ask(sight, "llama 3.1 8b")
    sight.page.locator("#fault-sentence:not([hidden])").wait_for()
    assert "names no GPU" in sight.text("#fault-sentence")
    assert sight.page.locator("#parts li").count() == 0
