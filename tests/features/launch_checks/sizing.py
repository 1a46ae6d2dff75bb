"""Questions and machines of the tests of launch checks."""

from typing import Any

from service.calibration.records import ProbeName
from service.catalogue import shipped_catalogue
from service.estimator.question import Question
from service.estimator.resolve import ResolvedQuestion, configuration_of, resolve
from service.features.launch_checks.schemas import ALL_PROBES
from service.features.launch_checks.targets import Target, size_question
from service.features.launch_checks.tasks import ProbePlan, plan_probes
from service.validation.questions import read_question

H100 = shipped_catalogue().gpus["h100-sxm5-80gb"].gpu
NODE = Target(
    on="matching", is_matching=True, gpu=H100, device="NVIDIA H100 80GB HBM3", devices=8,
    memory_bytes=H100.memory_bytes, threads=64, measures=True,
)  # fmt: skip
LAPTOP = Target(on="any", is_matching=False, threads=2, measures=True)


def asked(model: Any, gpus: int = 8, length: int = 2048, recipe: Any = None, **layout: Any) -> Question:
    """A question about H100s, every default filled."""
    body = {
        "model": model,
        "recipe": {"sequence_length": length, **(recipe or {})},
        "layout": layout,
        "cluster": {"gpu": "h100-sxm5-80gb", "gpus": gpus},
    }
    return resolve(read_question(body, shipped_catalogue()).question).question


def worked_out(question: Question) -> ResolvedQuestion:
    """Its rows and ledger."""
    return configuration_of(question)


def plan(
    question: Question, target: Target, probes: tuple[ProbeName, ...] = ALL_PROBES, seconds: float = 120.0
) -> ProbePlan:
    """What would be measured of a question on a machine."""
    return plan_probes(size_question(question, target, seconds), target, probes, seconds)
