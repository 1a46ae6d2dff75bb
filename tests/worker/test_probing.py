"""All cases are timed in turn within the time limit, and faults of one are reported."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from service.worker import probing
from tests.worker.probing import need_torch, tell_nobody, told

Raises = Callable[[], probing.PreparedRun]


@pytest.fixture(autouse=True)
def _torch() -> None:
    need_torch()


class Runs:
    """Cases that tell when they run."""

    def __init__(self) -> None:
        self.order: list[str] = []

    def case(self, name: str, amount: float = 1.0, error: float = 0.0, quantity: str = "seconds") -> probing.Case:
        ready = probing.PreparedRun(run=lambda: self.order.append(name), error_fraction=lambda: error)
        return _case(name, amount, lambda: ready, quantity)


def _case(name: str, amount: float, prepare: Raises, quantity: str = "seconds") -> probing.Case:
    return probing.Case(
        operation=name, shape={}, amount=amount, prepare=prepare, allowed_error_fraction=1e-3, quantity=quantity
    )


def _refuses(error: Exception) -> Raises:
    def prepare() -> probing.PreparedRun:
        raise error

    return prepare


def test_cases_take_turns_the_smallest_first(tmp_path: Path) -> None:
    runs = Runs()
    found = probing.time_cases([runs.case("large", 2.0), runs.case("small")], told(tmp_path), repeats=3)
    first = ["small"] * (probing.WARM_UPS + 1) + ["large"] * (probing.WARM_UPS + 1)
    assert runs.order == [*first, "small", "large", "small", "large"]
    assert [(one.operation, one.repeats) for one in found.measurements] == [("large", 3), ("small", 3)]


def test_a_rate_is_the_amount_over_the_time(tmp_path: Path) -> None:
    found = probing.time_cases([Runs().case("copy", 8.0, quantity="bytes_per_s")], told(tmp_path), repeats=5)
    (one,) = found.measurements
    assert one.quantity == "bytes_per_s"
    assert 1 < one.low <= one.value <= one.high < math.inf


def test_what_cannot_run_is_left_out_and_the_rest_is_measured(tmp_path: Path) -> None:
    runs = Runs()
    cases = [
        _case("fp8", 1.0, _refuses(probing.CannotRun("no fp8 here"))),
        _case("huge", 2.0, _refuses(RuntimeError("CUDA out of memory. Tried to allocate 80.00 GiB"))),
        runs.case("wrong", 3.0, error=0.5),
        runs.case("nothing", 4.0, error=math.nan),
        runs.case("right", 5.0, error=1e-4),
    ]
    found = probing.time_cases(cases, told(tmp_path), repeats=2)
    assert [(one.operation, one.relative_error_fraction) for one in found.measurements] == [("right", 1e-4)]
    reasons = {row["operation"]: row["reason"] for row in (found.summary or {})["left_out"]}
    assert reasons["fp8"] == "no fp8 here"
    assert reasons["huge"].startswith("out of memory")
    assert reasons["wrong"] == "wrong result, off by 0.5 of the largest number"
    assert reasons["nothing"].startswith("wrong result")
    codes = {row["operation"]: row["code"] for row in (found.summary or {})["left_out"]}
    assert codes == {
        "fp8": "cannot_run", "huge": "out_of_memory", "wrong": "wrong_result", "nothing": "wrong_result",
    }  # fmt: skip
    assert (found.reason or "").startswith("4 not measured: no fp8 here; out of memory")


def test_an_error_that_nobody_foresaw_is_not_hidden(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="illegal memory access"):
        probing.time_cases([_case("broken", 1.0, _refuses(RuntimeError("illegal memory access")))], told(tmp_path))


class Hurried(probing.ProbeContext):
    """A probe whose time is up after so many looks at the clock."""

    looks: list[int] = []  # noqa: RUF012 - counts over the life of one test

    def left_seconds(self) -> float:
        self.looks.append(1)
        return 1e6 if len(self.looks) <= 5 else -1.0


def test_a_probe_that_is_late_tells_what_it_has(tmp_path: Path) -> None:
    Hurried.looks.clear()
    hurried = Hurried(device="cpu", folder=tmp_path, end_seconds=0.0, report=tell_nobody)
    runs = Runs()
    found = probing.time_cases([runs.case("one"), runs.case("two", 2.0)], hurried, repeats=50)
    assert [one.repeats for one in found.measurements] == [3, 2]
    assert found.reason == "2 kernels were measured fewer than 50 times: no time was left"


def test_what_no_time_is_left_for_is_left_out(tmp_path: Path) -> None:
    runs = Runs()
    found = probing.time_cases([runs.case("one")], told(tmp_path, left_seconds=-1.0))
    assert (found.measurements, runs.order) == ((), [])
    assert found.reason == "1 not measured: no time was left"


def test_quantiles_are_those_of_the_repeats() -> None:
    found = probing.measurement("x", {}, "seconds", [float(number) for number in range(11)][::-1])
    assert (found.low, found.value, found.high, found.repeats) == (1.0, 5.0, 9.0, 11)


def test_caches_of_the_last_level_are_counted_once(tmp_path: Path) -> None:
    rows = [(0, 3, "0-1", "32768K", "Unified"), (1, 3, "0-1", "32768K", "Unified"), (2, 3, "2-3", "32768K", "Unified")]
    rows += [(0, 2, "0", "512K", "Unified"), (0, 1, "0", "32K", "Instruction")]
    for number, (cpu, level, shared, size, kind) in enumerate(rows):
        folder = tmp_path / f"cpu{cpu}" / "cache" / f"index{number}"
        folder.mkdir(parents=True)
        texts = {"level": str(level), "shared_cpu_list": shared, "size": size, "type": kind}
        for name, text in texts.items():
            (folder / name).write_text(f"{text}\n")
    assert probing.last_level_bytes(tmp_path) == 2 * 32768 * 1024
    assert probing.last_level_bytes(tmp_path / "nothing") == 0
