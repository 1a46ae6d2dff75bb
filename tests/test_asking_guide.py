"""Commands of the page with a question of each kind, sent to a live service, and what their answers have to hold."""

import csv
import io
import re
from html import unescape
from typing import Any

import httpx
import pytest

from tests.curl import asked
from tests.guide_pages import blocks_of
from tests.house.source import SERVICE
from tests.live import DOCUMENTED

PAGE = SERVICE / "web" / "guide" / "asking.html"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = blocks_of(PAGE)
COMMANDS = [block.text for block in BLOCKS if block.kind == "command"]


def _answer(part: str, address: str) -> dict[str, Any]:
    (curl,) = [curl for curl in COMMANDS if part in curl]
    response = asked(curl, address)
    assert response.is_success, response.text
    answer = response.json()
    assert isinstance(answer, dict)
    return answer


def test_there_are_twenty_questions() -> None:
    assert len(COMMANDS) == 20


def test_a_sentence_is_understood_whole(address: str) -> None:
    answer = _answer("/v1/ask", address)
    assert {chip["state"] for chip in answer["chips"]} == {"understood", "assumed"}
    assert answer["limits"] == [{"days": 3.0, "cost_usd": None, "verdict": "kept"}]
    assert answer["answer"]["resolved"]["cluster"]["gpus"] == 4


def test_what_launchers_write_is_listed_as_it_is_read(address: str) -> None:
    answer = _answer("per_device_train_batch_size", address)
    assert 'recipe.seq_length "8k" -> recipe.sequence_length = 8192' in answer["assumptions"]
    assert answer["resolved"]["recipe"]["global_batch"] == 256
    assert answer["resolved"]["cluster"]["gpus"] == 32


def test_a_sweep_waits_for_workers(address: str) -> None:
    answer = _answer("/v1/sweeps", address)
    assert (answer["status"], answer["rows"]["total"]) == ("queued", 8)


def test_estimate_of_a_preset(address: str) -> None:
    answer = _answer("/v1/estimates", address)
    assert answer["parameters"]["total"] == 8_030_261_248
    assert answer["verdict"] == "fits"
    assert answer["warnings"] == []
    assert answer["totals"]["steps"] == 47_684
    assert answer["totals"]["cost_usd"]["value"] == pytest.approx(2.5 * answer["totals"]["gpu_hours"]["value"])


def test_what_each_gpu_sends(address: str) -> None:
    answer = _answer('"global_batch": 1024}', address)
    sent = {row["kind"]: row for row in answer["communication"]}
    assert (sent["pipeline_send_activations"]["link"], sent["tensor_all_gather_activations"]["link"]) == (
        "network", "scale_up",
    )  # fmt: skip
    exposed = sum(row["exposed_seconds"] for row in sent.values() if row["axis"] == "data")
    (part,) = [part for part in answer["step"]["parts"] if part["kind"] == "exposed_data"]
    assert exposed == pytest.approx(part["seconds"])
    assert sent["data_reduce_scatter_gradients"]["seconds"] > 0


def test_cost_line_by_line_and_carbon(address: str) -> None:
    answer = _answer("discount_fraction", address)
    totals = answer["totals"]
    assert answer["warnings"] == []
    assert totals["spare_gpus"] == 8
    assert [line["kind"] for line in totals["cost"]] == ["gpus", "spares", "storage"]
    assert round(sum(line["usd"]["value"] for line in totals["cost"]), 2) == totals["cost_usd"]["value"]
    assert totals["carbon_kg_co2e"]["value"] == pytest.approx(0.41272 * totals["energy_kwh"]["value"])


def test_memory_of_a_pasted_config(address: str) -> None:
    answer = _answer('"qwen2"', address)
    assert answer["resolved"]["model"]["tie_word_embeddings"] is True
    assert answer["resolved"]["model"]["attention_bias"] is True
    weights = [line["bytes"] for line in answer["memory"]["stages"][0]["lines"] if line["kind"] == "weights"]
    assert weights == [2 * 494_032_768]  # Qwen2.5-0.5B, the parameters of its published checkpoint in bf16


def test_memory_of_a_reward_model(address: str) -> None:
    answer = _answer("ForSequenceClassification", address)
    assert answer["resolved"]["model"]["scalar_head"] is True
    assert answer["warnings"] == []
    weights = [line["bytes"] for line in answer["memory"]["stages"][0]["lines"] if line["kind"] == "weights"]
    assert weights == [4 * (8_030_261_248 - (128_256 - 1) * 4096)]  # Llama 3.1 8B, one row of its head left, in fp32


def test_timeline_of_two_stages(address: str) -> None:
    answer = _answer("/v1/memory/timeline", address)
    first, last = answer["stages"]
    assert "logits" in last["kinds"]
    assert "logits" not in first["kinds"]
    for stage in (first, last):
        states = stage["kinds"].index("optimizer_states")
        held = [point["series_bytes"][states] for point in stage["points"] if point["moment"] == "forward"]
        assert held[0] == 0
        assert held[-1] > 0
        assert stage["later_step_peak_bytes"] > stage["first_step_peak_bytes"]


def test_check_of_a_job_that_is_too_large(address: str) -> None:
    answer = _answer("/v1/check", address)
    assert answer["verdict"] == "deny"
    assert "\n" not in answer["reason"]


def test_a_planned_layout_keeps_what_is_given(address: str) -> None:
    answer = _answer('"auto"', address)
    assert answer["verdict"] == "fits"
    assert answer["resolved"]["layout"]["tensor"] in {1, 2}
    assert any("tensor one of 2" in words for words in answer["assumptions"])


def test_plans_and_why_not_another(address: str) -> None:
    answer = _answer("/v1/plans", address)
    assert len(answer["plans"]) == 3
    assert {row["layout"]["zero_stage"] for row in answer["plans"]} <= {1, 3}
    assert {row["cluster"]["gpus"] for row in answer["plans"]} <= {128, 256}
    assert answer["why_not"]["reason"]


def test_comparison_of_clusters_and_prices(address: str) -> None:
    rows = _answer("/v1/compare", address)["rows"]
    assert {row["cluster"] for row in rows} == {None, "fp8"}
    assert len({row["provider"] for row in rows}) > 5
    assert {row["price_model"] for row in rows} == {None, "on-demand"}
    costs = [row["cost_usd"]["value"] for row in rows if row["verdict"] == "fits"]
    assert len(costs) > 20
    assert costs == sorted(costs)


def test_export_to_a_scheduler(address: str) -> None:
    answer = _answer("/v1/exports/sbatch", address)
    assert "#SBATCH --nodes=8" in answer["content"]
    assert "--recompute-granularity full" in answer["content"]
    assert answer["not_expressible"] == []


def test_fewest_gpus_for_a_deadline(address: str) -> None:
    answer = _answer("/v1/solve", address)
    assert answer["evidence"]["value"]["days"]["value"] <= 14 < answer["evidence"]["next"]["days"]["value"]
    assert answer["next"]["value"] < answer["value"]


def test_changes_between_two_questions(address: str) -> None:
    (curl,) = [curl for curl in COMMANDS if "/v1/differences.md" in curl]
    rows = [line.split(" | ")[0].strip("| ") for line in asked(curl, address).text.splitlines()[2:]]
    assert rows == ["before", "recipe.global_batch", "cluster.gpus", "price.usd_per_gpu_hour", "after"]


def test_table_of_varied_fields(address: str) -> None:
    first, *rows = _answer("/v1/sensitivity", address)["rows"]
    assert [row["status"] for row in (first, *rows)] == [200] * 6
    assert all(row["ratios"]["device_peak_bytes"] != 1 for row in rows)


def test_memory_as_another_tool_says(address: str) -> None:
    answer = _answer("method=", address)
    assert round(answer["peak_bytes"] / 2**20) == 74_177
    assert answer["known_defects"]


def test_program_of_the_client(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = [block.text for block in BLOCKS if block.kind == "python"]
    exec(program.replace(DOCUMENTED, address), {})  # noqa: S102 - a command that readers are given
    verdict, headroom_bytes = capsys.readouterr().out.split()
    assert verdict == "fits"
    assert float(headroom_bytes) > 0


def test_cell_formula_gives_the_number_of_the_estimate(address: str) -> None:
    (formula,) = [block.text for block in BLOCKS if block.kind == "formula"]
    found = re.fullmatch(r'=NUMBERVALUE\(WEBSERVICE\("([^"]+)"\);"\.";","\)', formula)
    assert found
    url = found[1].replace(DOCUMENTED, address)
    text = httpx.get(url, timeout=30).text
    assert re.fullmatch(r"\d+\.\d+", text)
    whole = _answer("/v1/estimates", address)
    assert float(text) == pytest.approx(whole["totals"]["gpu_hours"]["value"], rel=1e-14)
    why = httpx.get(url.replace("/gpu_hours?", "/why?metric=gpu_hours&"), timeout=30).text
    assert why == "ok"
    wrong = httpx.get(url.replace("tensor=2", "tensor=x&on_error=text"), timeout=30).text
    assert wrong.startswith("#ERR ")


def test_table_of_cells_is_a_sweep(address: str) -> None:
    (path,) = re.findall(r'href="(/v1/cell/table\.csv[^"]+)"', TEXT)
    answer = httpx.get(f"http://{address}{unescape(path)}", timeout=30).text
    assert [row["tensor"] for row in csv.DictReader(io.StringIO(answer, newline=""))] == ["1", "2", "4"]


@pytest.mark.parametrize(
    "path", ["/v1/models", "/v1/gpus", "/v1/clusters", "/v1/prices", "/v1/rate-cards", "/v1/choices"]
)
def test_linked_lists_answer(address: str, path: str) -> None:
    assert f'href="{path}"' in TEXT
    assert httpx.get(f"http://{address}{path}", timeout=30).status_code == 200
