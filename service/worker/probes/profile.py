"""A profile of training steps: a trace for TensorBoard and Chrome's viewer, and its summary."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, IterableDataset

from service.errors import Refused
from service.worker.probing import CannotRun, ProbeContext, ProbeResult
from service.worker.profiling import read_trace, summary_of
from service.worker.training.fields import model_fields
from service.worker.training.recipe import StepRecipe, step_recipe
from service.worker.training.trainer import Trainer, trainer_of

TRACE = "trace.json.gz"
"""Name of the file; TensorBoard requires `.pt.trace.json.gz` at its end."""

WAIT, WARM_UP, ACTIVE = 1, 1, 3
"""Steps before the profiler starts, those that it discards, and those that it records. Source:
torch.profiler.schedule, as torch's tutorials use it."""


class Batches(IterableDataset):
    """Random tokens, batch after batch, created on the host as a loader of real data does."""

    def __init__(self, vocabulary: int, recipe: StepRecipe) -> None:
        self.vocabulary, self.shape = vocabulary, (recipe.micro_batch, recipe.sequence_length)

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Endless batches."""
        while True:
            yield torch.randint(self.vocabulary, self.shape)


def run(parameters: Mapping[str, Any], context: ProbeContext) -> ProbeResult:
    """Profile three steps of the model at one depth."""
    try:
        recipe, depth = step_recipe(parameters["recipe"]), int(parameters["depth"])
        model = model_fields(parameters["model"], depth)
    except Refused as error:
        raise CannotRun(str(error)) from error
    trainer = trainer_of(model, recipe, context.device)
    path = context.folder / TRACE
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if trainer.device.type == "cuda" else [])]
    loader = iter(DataLoader(Batches(model.vocab_size, recipe), batch_size=None))
    steps = WAIT + WARM_UP + ACTIVE
    with profile(
        activities=activities,
        schedule=schedule(wait=WAIT, warmup=WARM_UP, active=ACTIVE, repeat=1),
        on_trace_ready=lambda profiled: profiled.export_chrome_trace(str(path)),
    ) as profiler:
        for step in range(steps):
            context.report(step / steps, f"step {step + 1} of {steps}")
            _step(trainer, next(loader))
            profiler.step()
    summary = summary_of(read_trace(path))
    return ProbeResult(summary={**summary, "depth": depth, "files": [TRACE]})


def _step(trainer: Trainer, batch: torch.Tensor) -> None:
    trainer.tokens = batch.to(trainer.device, non_blocking=True)
    trainer.step()
