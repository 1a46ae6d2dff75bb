"""A profile of training steps: a trace for TensorBoard and Chrome's viewer, and its summary."""

from collections.abc import Iterator, Mapping
from time import perf_counter
from typing import Any

from service.calibration.profiles import summary_of
from service.calibration.traces import read_trace
from service.worker.probing import ProbeContext, ProbeResult
from service.worker.supported import step_model, step_recipe

TRACE = "trace.json.gz"
"""Name of the file; TensorBoard requires `.pt.trace.json.gz` at its end."""

WAIT, WARM_UP, ACTIVE = 1, 1, 3
"""Steps before the profiler starts, those that it discards, and those that it records. Source:
torch.profiler.schedule, as torch's tutorials use it."""


def run(parameters: Mapping[str, Any], context: ProbeContext) -> ProbeResult:
    """Profile three steps of the model at one depth."""
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule
    from torch.utils.data import DataLoader, IterableDataset

    from service.worker.decoder import trainer_of

    recipe, depth = step_recipe(parameters["recipe"]), int(parameters["depth"])
    model = step_model(parameters["model"], depth)
    trainer = trainer_of(model, recipe, context.device)

    class Batches(IterableDataset):
        """Random tokens without end, which the host creates batch after batch as a loader of real data does."""

        def __iter__(self) -> Iterator[torch.Tensor]:
            while True:
                yield torch.randint(model.vocab_size, trainer.tokens.shape)

    path = context.folder / TRACE
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if trainer.device.type == "cuda" else [])]
    loader = iter(DataLoader(Batches(), batch_size=None))
    steps = WAIT + WARM_UP + ACTIVE
    with profile(
        activities=activities,
        schedule=schedule(wait=WAIT, warmup=WARM_UP, active=ACTIVE, repeat=1),
        on_trace_ready=lambda profiled: profiled.export_chrome_trace(str(path)),
    ) as profiler:
        clock = []
        for step in range(steps):
            began = perf_counter()
            context.report(step / steps, f"step {step + 1} of {steps}")
            trainer.tokens = next(loader).to(trainer.device, non_blocking=True)
            trainer.step()
            clock.append(perf_counter() - began)
            profiler.step()
    summary = summary_of(read_trace(path.read_bytes()).events)
    return ProbeResult(summary={**summary, "clock_seconds": clock[-ACTIVE:], "depth": depth, "files": [TRACE]})
