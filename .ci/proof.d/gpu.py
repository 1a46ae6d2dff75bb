"""Launch checks of three models on the NVIDIA GPU of this host, beside predictions that other models calibrated."""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from service.answers.launch_checks import LaunchCheck
from service.catalogue import shipped_catalogue
from service.cli.reports import launch_check_report
from service.client import Client
from service.validation.devices import gpu_of_device
from service.worker.devices import counted, gpus_here
from tests.live import serving

MODELS = {"qwen3-0.6b": "dense, small", "llama-3.1-8b": "dense, the width of 8B", "olmoe-1b-7b": "mixture of experts"}
SEQUENCE_LENGTH = 4096
BUDGET_SECONDS = 240
NO_GPU = 3
"""Exit status where this host has no GPU to measure."""
MOST_OFF_MEMORY_FRACTION, MOST_OFF_STEP_FRACTION = 0.03, 0.08


def gpu_here() -> str:
    """Catalogue name of the GPU that this host has."""
    for device in counted(gpus_here()):
        slug = gpu_of_device(device["name"], device["memory_bytes"], shipped_catalogue())
        if slug is not None:
            return slug
        print(f"the catalogue holds no {device['name']}")
    print("no GPU of the catalogue is here that torch can use: nothing was measured", file=sys.stderr)
    sys.exit(NO_GPU)


def asked(slug: str, gpu: str) -> dict[str, Any]:
    """The body of a launch check of a model on one GPU."""
    return {
        "question": {
            "model": slug,
            "recipe": {"sequence_length": SEQUENCE_LENGTH, "attention": "flash", "stack": "transformers"},
            "cluster": {"gpu": gpu, "gpus": 1},
        },
        "on": "matching",
        "time_budget_seconds": BUDGET_SECONDS,
    }


def memory_off_fraction(found: LaunchCheck) -> float:
    """How far the farthest predicted peak of allocated tensors is off."""
    rows = [one for probe in found.probes for one in probe.measurements if one.operation == "allocated_peak"]
    return max((abs(1 / one.ratio - 1) for one in rows if one.ratio), default=1.0)


def step_off_fractions(http: httpx.Client, gpu: str) -> Mapping[str, float]:
    """How far steps are off on average, by what constants predicted: of other models' runs, of published rates."""
    made = http.post("/v1/calibrations", json={"gpu": gpu}).raise_for_status().json()
    (part,) = (one for one in made["parts"] if one["probe"] == "step")
    return {"calibrated on the other models": part["held_out_fraction"], "published rates": part["before_fraction"]}


def main(words: Sequence[str]) -> int:
    gpu = gpu_here()
    with tempfile.TemporaryDirectory(prefix="traincost-gpu-") as name:
        folder = Path(name)
        with serving(folder, with_worker=True) as address, Client(f"http://{address}") as client:
            checks = {slug: client.launch_check(asked(slug, gpu), lambda _: None) for slug in MODELS}
            with httpx.Client(base_url=f"http://{address}", timeout=120) as http:
                steps = step_off_fractions(http, gpu)
                table = http.get("/v1/measurements.csv").raise_for_status().content
    for found in checks.values():
        print(launch_check_report(found), end="\n\n")
    if words:  # kept as data: each row with its value, its prediction and the fingerprint of what it was measured on
        Path(words[0]).write_bytes(table)
    memory = {slug: memory_off_fraction(found) for slug, found in checks.items()}
    for slug, off in memory.items():
        print(
            f"{slug:14} {MODELS[slug]:24} allocated peaks off by {off:.2%} at most; bar {MOST_OFF_MEMORY_FRACTION:.0%}"
        )
    for constants, off in steps.items():
        print(f"steps predicted by {constants}: off by {off:.2%} on average; bar {MOST_OFF_STEP_FRACTION:.0%}")
    is_far = steps["calibrated on the other models"] > MOST_OFF_STEP_FRACTION
    has_failed = any(probe.status != "succeeded" for found in checks.values() for probe in found.probes)
    return int(is_far or has_failed or max(memory.values()) > MOST_OFF_MEMORY_FRACTION)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
