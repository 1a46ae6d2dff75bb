"""Seconds of attention, forward and backward, by kernel: `eager`, or a backend of `scaled_dot_product_attention`."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from service.calibration.records import BACKWARD_WORK
from service.worker import probing

BACKENDS = {"flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "cudnn": "CUDNN_ATTENTION"}

TRIAL_LENGTH = 128
"""Tokens of a first trial of a kernel. Source: a choice, one block of any kernel."""
CHECKED = 64
"""Queries that are compared with exact ones. Source: a choice."""


@probing.timed
def run(parameters: Mapping[str, Any], inputs: probing.KernelInputs) -> list[probing.Case]:
    return [_case(way, shape, inputs) for shape in parameters["kernels"] for way in ("forward", "backward")]


def _case(operation: str, shape: Mapping[str, Any], inputs: probing.KernelInputs) -> probing.Case:
    pairs = float(shape["length"]) ** 2 / (2 if shape["causal"] else 1)
    flop = 4.0 * shape["batch"] * shape["heads"] * shape["width"] * pairs
    return probing.Case(
        operation=operation,
        shape=shape,
        amount=flop * (BACKWARD_WORK if operation == "backward" else 1),
        prepare=partial(_forward if operation == "forward" else _backward, shape, inputs),
        allowed_error_fraction=probing.allowed_error_fraction(shape["dtype"]),
    )


def _forward(shape: Mapping[str, Any], inputs: probing.KernelInputs) -> probing.PreparedRun:
    """The forward pass of a training step, which saves what the backward pass needs."""
    query, key, value, _ = _tensors(shape, inputs)
    attend = _kernel(shape, query)

    def forward() -> Any:
        return attend(query, key, value)

    def off_fraction() -> float:
        places, exact = _exact(shape, query, key, value)
        return probing.error_fraction(_first_group(shape, forward().detach())[:, places], exact.detach())

    return probing.PreparedRun(run=forward, error_fraction=off_fraction)


def _backward(shape: Mapping[str, Any], inputs: probing.KernelInputs) -> probing.PreparedRun:
    """The backward pass alone, of a forward pass that ran before."""
    query, key, value, gradient = _tensors(shape, inputs)
    result = _kernel(shape, query)(query, key, value)

    def backward() -> Any:
        return torch.autograd.grad(result, (query, key, value), gradient, retain_graph=True)

    def off_fraction() -> float:
        chosen = query.detach().requires_grad_()
        places, exact = _exact(shape, chosen, key, value)
        exact.backward(_first_group(shape, gradient)[:, places].double())
        reference = _first_group(shape, chosen.grad)[:, places]
        return probing.error_fraction(_first_group(shape, backward()[0])[:, places], reference)

    return probing.PreparedRun(run=backward, error_fraction=off_fraction)


def _tensors(shape: Mapping[str, Any], inputs: probing.KernelInputs) -> tuple[Any, Any, Any, Any]:
    batch, length, width = shape["batch"], shape["length"], shape["width"]
    many, few = (batch, shape["heads"], length, width), (batch, shape["kv_heads"], length, width)
    query, key, value, gradient = inputs.random(shape["dtype"], many, few, few, many)
    return (*(one.detach().requires_grad_() for one in (query, key, value)), gradient)


def _kernel(shape: Mapping[str, Any], like: Any) -> Callable[[Any, Any, Any], Any]:
    if shape["kernel"] == "eager":
        return partial(_eager, shape, _mask(shape, range(shape["length"]), like) if shape["causal"] else None)
    if shape["kernel"] not in BACKENDS:
        raise probing.CannotRun(f"no attention kernel {shape['kernel']}; there are eager, {', '.join(BACKENDS)}")
    groups = shape["heads"] // shape["kv_heads"]
    shares = groups > 1 and _shares_keys(shape["kernel"], shape["width"], like.dtype, like.device)
    return partial(_fused, shape, shares=shares)


def _fused(shape: Mapping[str, Any], query: Any, key: Any, value: Any, *, shares: bool) -> Any:
    """A backend of torch; where it does not share keys among heads, keys are repeated first, as models do."""
    groups = shape["heads"] // shape["kv_heads"]
    if groups > 1 and not shares:
        key, value = (one.repeat_interleave(groups, dim=1) for one in (key, value))
    try:
        return _attend(shape["kernel"], (query, key, value), is_causal=shape["causal"], enable_gqa=shares)
    except RuntimeError as error:
        if probing.is_out_of_memory(error):
            raise
        message = str(error).partition("\n")[0]
        raise probing.CannotRun(
            f"{query.device.type} has no {shape['kernel']} attention for {shape['dtype']}: {message}"
        ) from error


def _attend(kernel: str, tensors: Sequence[Any], **options: bool) -> Any:
    with sdpa_kernel(getattr(SDPBackend, BACKENDS[kernel])):
        return functional.scaled_dot_product_attention(*tensors, **options)


@cache
def _shares_keys(kernel: str, width: int, dtype: Any, device: Any) -> bool:
    """Whether a kernel shares one key among several heads, found by one trial."""
    query, key = (torch.ones((1, heads, TRIAL_LENGTH, width), dtype=dtype, device=device) for heads in (2, 1))
    try:
        _attend(kernel, (query, key, key), is_causal=True, enable_gqa=True)
    except RuntimeError:
        return False
    return True


def _eager(shape: Mapping[str, Any], mask: Any, query: Any, key: Any, value: Any) -> Any:
    """Scores, a mask that exists before, softmax in fp32, sum: as models are written out."""
    groups = shape["heads"] // shape["kv_heads"]
    if groups > 1:
        key, value = (one.repeat_interleave(groups, dim=1) for one in (key, value))
    scores = query @ key.mT * shape["width"] ** -0.5
    if mask is not None:
        scores = scores + mask
    return torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype) @ value


def _mask(shape: Mapping[str, Any], places: Sequence[int], like: Any) -> Any:
    keys = torch.arange(shape["length"], device=like.device)
    queries = torch.tensor(places, device=like.device)
    zeros = torch.zeros((len(queries), len(keys)), dtype=like.dtype, device=like.device)
    return zeros.masked_fill(keys[None] > queries[:, None], -torch.inf)


def _first_group(shape: Mapping[str, Any], tensor: Any) -> Any:
    """Heads of the first sequence that share its first key."""
    return tensor[0, : shape["heads"] // shape["kv_heads"]]


def _exact(shape: Mapping[str, Any], query: Any, key: Any, value: Any) -> tuple[list[int], Any]:
    """Some queries of the first group, and their exact result: the gradient of a query needs no other query."""
    places = probing.spread(shape["length"], CHECKED)
    chosen = _first_group(shape, query)[:, places].double()
    scores = chosen @ key[0, 0].detach().double().mT * shape["width"] ** -0.5
    if shape["causal"]:
        scores = scores + _mask(shape, places, scores)
    return places, torch.softmax(scores, dim=-1) @ value[0, 0].detach().double()
