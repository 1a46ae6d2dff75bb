"""FLOP that torch's own counter sees of a model, without those that are not the model's.

The counts are in flop_counter_counts.json; `.ci/proof flop` measures them again. Torch counts what the eager kernel
multiplies, so ours are those of the `full` convention, without any mask.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from service.catalogue import shipped_catalogue
from service.estimator import Layout, Model, Question, Recipe
from service.estimator.model.build import mlp_type
from service.estimator.model.counts import SequenceFlop, sequence_flop
from service.estimator.question import Cluster, Method
from service.estimator.resolve import resolve
from service.estimator.samples import H100

COUNTS = Path(__file__).with_name("flop_counter_counts.json")


@dataclass(frozen=True, kw_only=True)
class Counted:
    """One model that was run on torch's meta device, and what its counter said."""

    preset: str
    """Name in the catalogue; its config stands in tests/catalogue/preset_configs.json."""
    tokens: int
    batch: int
    method: dict[str, Any] = field(default_factory=lambda: {"name": "full"})
    """What is trained, as a question spells it."""
    beside: tuple[str, ...] = ()
    """What torch counts beside the model's own FLOP: keys of `BESIDE`."""
    forward: int = 0
    """FLOP of the forward pass of the whole batch."""
    backward: int = 0
    """FLOP of the backward pass of the whole batch."""


def recorded() -> list[Counted]:
    """Every model that was counted."""
    rows = json.loads(COUNTS.read_text(encoding="utf-8"))["models"]
    return [Counted(**{**row, "beside": tuple(row.get("beside", ()))}) for row in rows]


def model_of(case: Counted) -> Model:
    """The preset as transformers runs it: without multi-token-prediction depths."""
    model = shipped_catalogue().models[case.preset].model
    if model is None:
        raise ValueError(case.preset)
    return replace(model, num_nextn_predict_layers=0)


def method_of(case: Counted) -> Method:
    """What is trained."""
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in case.method.items()
    }
    return Method(**fields)


def ours(case: Counted) -> SequenceFlop:
    """The FLOP of one sequence by our ledger."""
    recipe = Recipe(sequence_length=case.tokens, method=method_of(case), stack="transformers", attention="eager")
    cluster = Cluster(gpu=H100.slug, gpus=1)
    question = Question(model=model_of(case), recipe=recipe, layout=Layout(), cluster=cluster, gpu=H100)
    workload = resolve(question).workload
    return sequence_flop(workload.ledger, workload.recompute)


def _every_expert(model: Model, tokens: int) -> int:
    sparse = sum(mlp_type(model, layer) == "sparse" for layer in range(model.num_hidden_layers))
    idle = model.num_experts - model.num_experts_per_tok
    return sparse * idle * 2 * tokens * model.hidden_size * 3 * model.expert_width


@dataclass(frozen=True)
class Beside:
    """Something that torch counts and that is no FLOP of the model."""

    formula: str
    """Its forward FLOP of one sequence; the backward pass takes twice that."""
    flop: Callable[[Model, int], int]
    """The same, computed."""


BESIDE = {"every expert runs on every token": Beside("2 s h 3 f_e (E - k) for each sparse layer", _every_expert)}
"""All that torch counts beside the models' own FLOP."""


def beside(case: Counted) -> int:
    """Forward FLOP of the whole batch that torch counts beside the model's own."""
    return case.batch * sum(BESIDE[name].flop(model_of(case), case.tokens) for name in case.beside)


def expected(case: Counted) -> tuple[int, int]:
    """What torch should say: our FLOP without a mask and what stands beside them, forward and backward."""
    one, extra = ours(case), beside(case)
    return case.batch * one.full + extra, case.batch * one.full_backward + 2 * extra
