"""Steps for tests: presets with the changes of a case, in settings that take seconds."""

import json
from dataclasses import replace
from functools import partial
from typing import Any

from service.catalogue import shipped_catalogue
from service.estimator import Layout, Model, Question, Recipe
from service.estimator.question import Cluster, Software
from service.estimator.resolve import ResolvedQuestion, resolve
from service.estimator.samples import H100
from service.validation.reading import to_wire
from tests.ask import known

MODELS = ("gpt2-124m", "smollm2-135m", "qwen3-0.6b")

FEW_TOKENS = 512
"""Rows of a vocabulary so small that activations decide the peak, not the optimizer and the logits."""


def model_of(slug: str, depth: int, **changes: Any) -> Model:
    """A preset at a depth."""
    return replace(known(shipped_catalogue().models[slug].model), num_hidden_layers=depth, **changes)


def resolved_step(model: Model, *, fused_update: bool | None = None, **recipe: Any) -> ResolvedQuestion:
    """One replica on one device, as transformers runs it, all eager unless told otherwise."""
    software = Software(name="transformers", implementation="eager", cross_entropy="eager", fused_update=fused_update)
    asked: dict[str, Any] = {"precision": "fp32", "attention": "eager", "stack": software, **recipe}
    return resolve(
        Question(
            model=model,
            recipe=Recipe(**asked),
            layout=Layout(),
            cluster=Cluster(gpu=H100.slug, gpus=1),
            gpu=H100,
        )
    )


def parameters_of(step: ResolvedQuestion, **more: Any) -> dict[str, Any]:
    """What a probe is told of a step, read as a worker reads it."""
    question = step.question
    told = {"model": to_wire(question.model), "recipe": to_wire(question.recipe), **more}
    read: dict[str, Any] = json.loads(json.dumps(told))
    return read


def counted_peaks(step: ResolvedQuestion, steps: int = 3) -> dict[int, int]:
    """Peaks of live tensors of the first and of the last step, counted in this process."""
    from service.worker.decoder import trainer_of
    from service.worker.probes.step import counted_steps, step_peaks
    from service.worker.supported import step_model, step_recipe

    told = parameters_of(step)
    make = partial(trainer_of, step_model(told["model"]), step_recipe(told["recipe"]), "cpu")
    _, moments = counted_steps(make, steps, "cpu")
    return {number: step_peaks(moments, number).peak_bytes for number in (1, steps)}
