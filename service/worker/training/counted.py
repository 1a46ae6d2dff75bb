"""How much memory do the first steps take, and how long does a later one?"""

import time
from collections.abc import Callable

import torch

from service.worker.training.gauges import readings
from service.worker.training.timeline import Moment
from service.worker.training.trainer import Held, Trainer

Make = Callable[[], Trainer]
"""Makes a model in training, anew."""


def counted_steps(make: Make, steps: int, device: str) -> tuple[Trainer, list[Moment]]:
    """Train, and tell what memory holds meanwhile.

    Args:
        make: makes what is trained; nothing of it is there before
        steps: steps [1]
        device: where

    Returns:
        what was trained, and every moment
    """
    places: list[tuple[int, str, int | None, Held]] = []
    made: list[Trainer] = []

    def work(mark: Callable[[], None]) -> None:
        trainer = make()
        made.append(trainer)
        for step in range(1, steps + 1):

            def tell(name: str, layer: int | None, step: int = step) -> None:
                places.append((step, name, layer, trainer.held()))
                mark()

            trainer.step(tell)

    found = readings(work, device)
    moments = [
        Moment(step=step, name=name, layer=layer, held=held, reading=reading)
        for (step, name, layer, held), reading in zip(places, found, strict=True)
    ]
    return made[0], moments


def step_seconds(trainer: Trainer, end_seconds: float, most: int) -> list[float]:
    """Seconds of steps after the first ones: by the GPU's own clock, or by the processor's.

    Args:
        trainer: what is trained; it has taken steps before
        end_seconds: time of the monotonic clock after which no further step begins [s]
        most: steps at most [1]

    Returns:
        seconds of each step, at least of one [s]
    """
    measure = _device_seconds if trainer.device.type == "cuda" else _host_seconds
    found: list[float] = []
    while len(found) < most and (not found or time.monotonic() < end_seconds):
        found.append(measure(trainer))
    return found


def _device_seconds(trainer: Trainer) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(trainer.device)
    begin.record()
    trainer.step()
    end.record()
    torch.cuda.synchronize(trainer.device)
    return float(begin.elapsed_time(end)) / 1e3


def _host_seconds(trainer: Trainer) -> float:
    begin = time.perf_counter()
    trainer.step()
    return time.perf_counter() - begin
