"""How is one update of AdamW run alone, and is it right?"""

from collections.abc import Callable, Mapping
from typing import Any

from service.worker.operands import Operands, error_fraction
from service.worker.probing import CannotRun
from service.worker.timing import Ready

TENSORS = 16
"""Tensors that the parameters are spread over, as those of a layer are. Source: a choice."""

CHECKED = 65_536
"""Parameters of the update that is compared with an exact one. Source: a choice."""

RATE, FIRST, SECOND, EPSILON, DECAY = 0.1, 0.9, 0.95, 1e-8, 0.1
"""Learning rate, high so that a missing update shows, and the other constants of the update."""

IMPLEMENTATIONS = ("fused", "foreach")
"""Ways to run it: one kernel for all tensors, or a few for each operation."""


def optimizer_step(shape: Mapping[str, Any], operands: Operands) -> Callable[[], Ready]:
    """An update of rows times width parameters.

    Args:
        shape: rows, width, dtype, and `implementation` where it is not fused
        operands: where random numbers come from

    Returns:
        what gets it ready; its state is made once and stays
    """
    made: list[Any] = []

    def ready() -> Ready:
        if not made:
            made.append(_optimizer(shape, operands, int(shape["rows"]) * int(shape["width"])))
        return Ready(run=made[0].step, error_fraction=lambda: _error(shape, operands))

    return ready


def _optimizer(shape: Mapping[str, Any], operands: Operands, count: int) -> Any:
    """AdamW over copies of random numbers, with random gradients."""
    import torch

    implementation = shape.get("implementation", IMPLEMENTATIONS[0])
    if implementation not in IMPLEMENTATIONS:
        raise CannotRun(f"no AdamW {implementation}; there are {', '.join(IMPLEMENTATIONS)}")
    weights, gradients = operands.random(shape["dtype"], (count,), (count,))
    parameters = []
    for weight, gradient in zip(weights.tensor_split(TENSORS), gradients.tensor_split(TENSORS), strict=True):
        parameter = torch.nn.Parameter(weight.clone())
        parameter.grad = gradient
        parameters.append(parameter)
    options: dict[str, Any] = {implementation: True}
    return torch.optim.AdamW(parameters, RATE, (FIRST, SECOND), EPSILON, DECAY, **options)


def _error(shape: Mapping[str, Any], operands: Operands) -> float:
    """Error of a first update of fewer parameters by the same kernel."""
    import torch

    optimizer = _optimizer(shape, operands, CHECKED)
    parameters = optimizer.param_groups[0]["params"]
    exact = torch.cat([_updated(one.detach().double(), one.grad.double()) for one in parameters])
    optimizer.step()
    return error_fraction(torch.cat([one.detach() for one in parameters]), exact)


def _updated(weight: Any, gradient: Any) -> Any:
    """A first update in double precision. Source: Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2."""
    first, second = (1 - FIRST) * gradient, (1 - SECOND) * gradient**2
    direction = first / (1 - FIRST) / ((second / (1 - SECOND)).sqrt() + EPSILON)
    return weight * (1 - RATE * DECAY) - RATE * direction
