"""`traincost compare` gives the rows that the API gives, as a table, as CSV or as JSON, without a server."""

import json

import pytest

from service.catalogue import shipped_catalogue
from service.cli.reports import comparison_report
from service.features.compare.compare import compare
from service.validation.reading import to_bytes
from tests.commands import Command, Commands, Ran

JOB = ["--model", "llama-3.1-8b", "--sequence-length", "8192", "--training-tokens", "2e11", "--tp", "2"]
ASKED = [*JOB, "--gpu", "h100", "--gpu", "v100-sxm2-32gb", "--gpus", "8", "--gpus", "64", "--usd-per-gpu-hour", "2.5"]
BODY = {
    "question": {
        "model": "llama-3.1-8b",
        "recipe": {"sequence_length": 8192, "training_tokens": 2e11},
        "layout": {"tensor": 2},
    },
    "clusters": [{"gpu": gpu, "gpus": gpus} for gpu in ("h100", "v100-sxm2-32gb") for gpus in (8, 64)],
    "prices": [{"usd_per_gpu_hour": 2.5}],
}


@pytest.fixture
def run(commands: Commands) -> Command:
    return commands("compare")


def test_it_gives_what_the_api_gives(run: Command) -> None:
    found = compare(BODY, shipped_catalogue())
    assert run(*ASKED) == Ran(0, f"{comparison_report(found)}\n", "")
    assert run(*ASKED, "--csv").out.splitlines() == found.csv().splitlines()
    assert run(*ASKED, "--json").out.encode() == to_bytes(found.answer) + b"\n"


def test_options_of_the_rows_reach_them(run: Command) -> None:
    said = ["--sort-by", "days", "--descending", "true", "--columns", "days", "--columns", "fits"]
    found = compare({**BODY, "sort_by": "days", "descending": True, "columns": ["days", "fits"]}, shipped_catalogue())
    assert json.loads(run(*ASKED, *said, "--json").out) == json.loads(to_bytes(found.answer))
    zipped = [*ASKED, "--usd-per-gpu-hour", "3", "--pair", "zip"]
    assert "zip puts each cluster beside one price, and there are 4 clusters and 2 prices" in run(*zipped).err


def test_every_price_of_a_gpu(run: Command) -> None:
    words = [*JOB, "--gpu", "h100", "--gpus", "8", "--provider", "*", "--region", "*", "--price-model", "on-demand"]
    lines = run(*words).out.splitlines()
    assert lines[0].split()[:6] == ["gpu", "gpus", "USD/GPU-h", "provider", "region", "price"]
    assert sum("on-demand" in line for line in lines) > 10


def test_a_row_that_is_refused_says_why_below_the_table(run: Command) -> None:
    ran = run(*ASKED, "--precision", "bf16")
    assert ran.code == 0
    assert "\nrow 3: " in ran.out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--gpus", "x"], "--gpus: "),
        (["--gpu", "h1000"], "--gpu: "),
        (["--tensor", "4"], "--tensor: tensor is given 2 times"),
        (["--sort-by", "cost"], "--sort-by: "),
        (["--descending", "perhaps"], "--descending: "),
    ],
)
def test_a_refusal_is_one_line_a_problem_with_its_option(run: Command, words: list[str], expected: str) -> None:
    ran = run(*ASKED, *words)
    assert (ran.code, ran.out) == (2, "")
    assert all(line.startswith(f"traincost: {expected}") for line in ran.err.splitlines())
