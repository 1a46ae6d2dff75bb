"""Every probe measures real kernels here in each of its forms, and detects a wrong result."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from service.calibration.records import Measurement
from service.worker.probing import CannotRun, ProbeResult
from tests.worker.probing import found_by, need_torch, sound

GEMM = {"name": "mlp.up", "rows": 48, "columns": 64, "inner": 32}
ATTENTION = {"batch": 2, "heads": 4, "kv_heads": 2, "length": 80, "width": 16}
REPEATS = 2


@pytest.fixture(autouse=True)
def _torch() -> None:
    need_torch()


def _shapes(found: ProbeResult) -> list[Mapping[str, Any]]:
    return [{"operation": one.operation, **one.shape} for one in found.measurements]


def _all_sound(measurements: tuple[Measurement, ...]) -> bool:
    return all(sound(one, REPEATS) for one in measurements)


def _left_out(found: ProbeResult) -> dict[str, str]:
    return {row["operation"]: row["reason"] for row in (found.summary or {})["left_out"]}


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("copies", [1, 3])
def test_products_of_each_layout_are_timed_and_right(dtype: str, copies: int, tmp_path: Path) -> None:
    asked = [
        {"operation": operation, **GEMM, "dtype": dtype, "copies": copies}
        for operation in ("forward", "input_gradient", "weight_gradient")
    ]
    found = found_by("gemm", {"products": asked, "repeats": REPEATS}, tmp_path)
    assert _shapes(found) == asked
    assert _all_sound(found.measurements)


def test_products_lie_in_memory_as_those_of_a_linear_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    seen: list[tuple[Any, ...]] = []
    multiply = torch.mm

    def noting(first: Any, second: Any, *, out: Any) -> Any:
        seen.append((first.shape, first.stride(), second.shape, second.stride(), out.shape, out.stride()))
        return multiply(first, second, out=out)

    monkeypatch.setattr(torch, "mm", noting)
    tokens, wide, out = 6, 4, 10
    for operation, rows, columns, inner in (
        ("forward", tokens, out, wide),
        ("input_gradient", tokens, wide, out),
        ("weight_gradient", wide, out, tokens),
    ):
        asked = {"operation": operation, "name": "x", "rows": rows, "columns": columns, "inner": inner, "dtype": "fp32"}
        found_by("gemm", {"products": [asked], "repeats": 1}, tmp_path)
        layer = torch.nn.Linear(wide, out, bias=False)
        inputs, gradient = torch.ones(tokens, wide), torch.ones(tokens, out)
        first, second = {
            "forward": (inputs, layer.weight.t()),
            "input_gradient": (gradient, layer.weight),
            "weight_gradient": (gradient.t(), inputs),
        }[operation]
        result = multiply(first, second)
        assert seen[-1] == (
            first.shape, first.stride(), second.shape, second.stride(), result.shape, result.stride(),
        )  # fmt: skip


def test_a_format_that_a_processor_lacks_is_left_out_with_the_reason(tmp_path: Path) -> None:
    asked = [{"operation": "forward", **GEMM, "dtype": dtype} for dtype in ("fp8", "fp32")]
    found = found_by("gemm", {"products": asked, "repeats": 1}, tmp_path)
    assert [one.shape["dtype"] for one in found.measurements] == ["fp32"]
    assert "capability 8.9" in _left_out(found)["forward"]
    with pytest.raises(CannotRun, match="no number format int3; there are fp32"):
        found_by("gemm", {"products": [{**asked[0], "dtype": "int3"}]}, tmp_path)


def test_a_wrong_product_is_no_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch, "mm", lambda *operands, out: out.fill_(len(operands)))
    found = found_by("gemm", {"products": [{"operation": "forward", **GEMM, "dtype": "fp32"}]}, tmp_path)
    assert found.measurements == ()
    assert _left_out(found)["forward"].startswith("wrong result")


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kernel", ["eager", "flash"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_attention_runs_both_ways_and_is_right(kernel: str, dtype: str, causal: bool, tmp_path: Path) -> None:
    asked = {"kernel": kernel, **ATTENTION, "dtype": dtype, "causal": causal}
    found = found_by("attention", {"kernels": [asked], "repeats": REPEATS}, tmp_path)
    assert _shapes(found) == [{"operation": way, **asked} for way in ("forward", "backward")]
    assert _all_sound(found.measurements)


def test_kernels_that_a_processor_lacks_are_left_out_by_name(tmp_path: Path) -> None:
    kernels = [{"kernel": name, **ATTENTION, "dtype": "fp32", "causal": True} for name in ("cudnn", "efficient", "x")]
    found = found_by("attention", {"kernels": kernels, "repeats": 1}, tmp_path)
    assert found.measurements == ()
    reasons = [row["reason"] for row in (found.summary or {})["left_out"]]
    assert reasons[0].startswith("cpu has no cudnn attention for fp32: ")
    assert reasons[2].startswith("cpu has no efficient attention for fp32: ")
    assert reasons[4] == "no attention kernel x; there are eager, flash, efficient, cudnn"


def test_attention_that_looks_ahead_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    attend = torch.nn.functional.scaled_dot_product_attention

    def unmasked(*tensors: Any, **options: Any) -> Any:
        return attend(*tensors, **{**options, "is_causal": False})

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", unmasked)
    asked = {"kernel": "flash", **ATTENTION, "dtype": "fp32", "causal": True}
    found = found_by("attention", {"kernels": [asked], "repeats": 1}, tmp_path)
    assert found.measurements == ()
    assert all(reason.startswith("wrong result") for reason in _left_out(found).values())


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_kernels_between_products_run_both_ways_and_are_right(dtype: str, tmp_path: Path) -> None:
    names = ("rms_norm", "layer_norm", "silu_mul", "gelu", "rope", "cross_entropy")
    asked = [
        {"operation": name, "rows": 70, "width": 96, "dtype": dtype, "direction": way}
        for name in names
        for way in ("forward", "backward")
    ]
    found = found_by("elementwise", {"kernels": asked, "repeats": REPEATS}, tmp_path)
    assert _shapes(found) == asked
    assert _all_sound(found.measurements)


def test_an_update_of_either_implementation_is_right(tmp_path: Path) -> None:
    update = {"operation": "adamw", "rows": 70, "width": 96, "dtype": "fp32", "direction": "forward"}
    asked = [update, {**update, "implementation": "foreach"}, {**update, "implementation": "other"}]
    found = found_by("elementwise", {"kernels": asked, "repeats": REPEATS}, tmp_path)
    assert _shapes(found) == asked[:2]
    assert _all_sound(found.measurements)
    assert _left_out(found)["adamw"] == "no AdamW other; there are fused, foreach"


def test_an_update_that_changes_nothing_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.optim.AdamW, "step", repr)
    asked = {"operation": "adamw", "rows": 7, "width": 9, "dtype": "fp32", "direction": "forward"}
    found = found_by("elementwise", {"kernels": [asked], "repeats": 1}, tmp_path)
    assert _left_out(found)["adamw"].startswith("wrong result")


def test_a_kernel_of_another_name_is_refused(tmp_path: Path) -> None:
    asked = {"operation": "softplus", "rows": 7, "width": 9, "dtype": "fp32", "direction": "forward"}
    with pytest.raises(CannotRun, match=r"no kernel softplus; there are rms_norm, .*, adamw"):
        found_by("elementwise", {"kernels": [asked]}, tmp_path)


def test_memory_is_copied_and_read(tmp_path: Path) -> None:
    found = found_by("bandwidth", {"sizes_bytes": [2**16, 2**20], "repeats": REPEATS}, tmp_path)
    sizes = [(one.operation, one.shape["size_bytes"], one.quantity) for one in found.measurements]
    assert sizes == [(name, size, "bytes_per_s") for size in (2**16, 2**20) for name in ("copy", "read")]
    assert _all_sound(found.measurements)
