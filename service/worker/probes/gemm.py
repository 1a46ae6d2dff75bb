"""Seconds of each matrix product of a model: forward, gradient of the input, gradient of the weight."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from service.worker import probing

CHECKED = 256
"""Rows, and columns, of a result that are compared with exact ones. Source: a choice."""
FP8_MULTIPLE = 16
"""Factor of an fp8 product's sizes. Source: pytorch/pytorch@v2.9 aten/src/ATen/native/cuda/Blas.cpp, _scaled_mm."""

FP8_CAPABILITY = (8, 9)
"""Lowest compute capability with fp8 products. Source: the same."""


@probing.timed
def run(parameters: Mapping[str, Any], inputs: probing.KernelInputs) -> list[probing.Case]:
    """Time matrix products."""
    return [_case(product, inputs) for product in parameters["products"]]


def _case(product: Mapping[str, Any], inputs: probing.KernelInputs) -> probing.Case:
    shape = {"copies": 1, **{name: value for name, value in product.items() if name != "operation"}}
    flop = 2.0 * shape["rows"] * shape["columns"] * shape["inner"] * shape["copies"]
    prepare = _fp8_product if shape["dtype"] == "fp8" else _product
    return probing.Case(
        operation=product["operation"],
        shape=shape,
        amount=flop,
        prepare=partial(prepare, product["operation"], shape, inputs),
        allowed_error_fraction=probing.allowed_error_fraction(shape["dtype"]),
    )


def _product(operation: str, shape: Mapping[str, Any], inputs: probing.KernelInputs) -> probing.PreparedRun:
    left_shape, right_shape = INPUT_SHAPES[operation](shape["rows"], shape["columns"], shape["inner"])
    many = (shape["copies"],) if shape["copies"] > 1 else ()
    left, right = inputs.random(shape["dtype"], (*many, *left_shape), (*many, *right_shape))
    first, second = FACTORS[operation](left, right)
    result = inputs.blank(shape["dtype"], (*many, first.shape[-2], second.shape[-1]))
    multiply = torch.bmm if many else torch.mm
    run = partial(multiply, first, second, out=result)
    return probing.PreparedRun(run=run, error_fraction=partial(_error, first, second, result))


INPUT_SHAPES: Mapping[str, Callable[[int, int, int], tuple[tuple[int, int], tuple[int, int]]]] = {
    "forward": lambda rows, columns, inner: ((rows, inner), (columns, inner)),
    "input_gradient": lambda rows, columns, inner: ((rows, inner), (inner, columns)),
    "weight_gradient": lambda rows, columns, inner: ((inner, rows), (inner, columns)),
}
"""Shapes in memory of both inputs: (input, weight); (output's gradient, weight); (input, output's gradient)."""

FACTORS: Mapping[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "forward": lambda source, weight: (source, weight.mT),
    "input_gradient": lambda gradient, weight: (gradient, weight),
    "weight_gradient": lambda source, gradient: (gradient.mT, source),
}
"""Factors of each product; the gradient of a weight has the layout of the weight, [out, in]."""


def _fp8_product(operation: str, shape: Mapping[str, Any], inputs: probing.KernelInputs) -> probing.PreparedRun:
    """An fp8 product with a scale for each factor and a bf16 result; products of gradients sum in full precision."""
    device = inputs.device
    if device == "cpu" or not (torch.version.hip or torch.cuda.get_device_capability(device) >= FP8_CAPABILITY):
        raise probing.CannotRun(f"{device} has no fp8 products; a GPU of compute capability 8.9 has them")
    if shape["copies"] > 1:
        raise probing.CannotRun("torch has no batched fp8 product that runs on every GPU; ask for one copy")
    unaligned = {name: shape[name] for name in ("rows", "columns", "inner") if shape[name] % FP8_MULTIPLE}
    if unaligned:
        raise probing.CannotRun(f"fp8 products need multiples of {FP8_MULTIPLE}, not {unaligned}")
    rows, columns, inner = shape["rows"], shape["columns"], shape["inner"]
    left, right = inputs.random("fp8", (rows, inner), (columns, inner))
    scale = torch.ones((), device=inputs.device)

    def product() -> Any:
        return torch._scaled_mm(
            left, right.t(), scale, scale, out_dtype=torch.bfloat16, use_fast_accum=operation == "forward"
        )

    # bf16 holds every fp8 number, and tensors of bf16 can be indexed on every device
    return probing.PreparedRun(
        run=product, error_fraction=lambda: _error(left.bfloat16(), right.bfloat16().t(), product())
    )


def _error(first: Any, second: Any, result: Any) -> float:
    """Error of the result at rows and columns spread over it."""
    left, right, whole = (one if one.dim() == 3 else one[None] for one in (first, second, result))
    rows, columns = probing.spread(whole.shape[1], CHECKED), probing.spread(whole.shape[2], CHECKED)
    copies = probing.spread(whole.shape[0], 2)
    exact = left[copies][:, rows].double() @ right[copies][:, :, columns].double()
    return probing.error_fraction(whole[copies][:, rows][:, :, columns], exact)
