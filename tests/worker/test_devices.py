"""The driver's output is read correctly, and a GPU in use is refused.

The lines are in the format that `nvidia-smi --help-query-gpu` documents: a field that a GPU lacks is [N/A] or [Not
Supported], a value that the driver could not get is [Unknown Error].
"""

import importlib.util
import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from service.calibration.records import Environment
from service.worker import devices
from service.worker.devices import (
    PROGRAM,
    DriverGpu,
    ask,
    computing_processes,
    driver_gpus,
    others_beside,
    others_on,
    parse_gpus,
    parse_samples,
    refuse_busy,
    samples_in,
    sampling,
)
from service.worker.probing import CannotRun
from tests.house.source import ROOT

TWO = """\
GPU-8f6d9f8e-5a6c-0c2b-5f61-0f1b7e1b5a11, 00000000:1B:00.0, 550.90.07, 1980, 700.00, 4, Disabled
GPU-2b1c6d1a-7d0e-4a77-9d4b-6a2f3f0c9d22, 00000000:43:00.0, 550.90.07, 1980, 650.00, 61440, Enabled
"""
OLD = "GPU-5d0f3c6e-0b0a-9b3d-1c55-9f7d1a2e3b33, 00000000:04:00.0, 418.226.00, [Not Supported], [N/A], 553, [N/A]\n"

SCRIPT = """\
#!/bin/sh
case "$*" in
  *--query-compute-apps*) printf '%b' '{apps}' ;;
  *--loop-ms*) printf '%b' '{looks}'; exec sleep 60 ;;
  *{refused}*) echo 'Field "{refused}" is not a valid field to query.'; exit 2 ;;
  *--query-gpu=uuid*) printf '%b' '{gpus}' ;;
  *) echo '0x0000000000000001' ;;
esac
"""


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in PATH in which a test puts its nvidia-smi."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


def install(folder: Path, *, gpus: str = TWO, apps: str = "", looks: str = "", refused: str = "none") -> None:
    """Put an nvidia-smi into a folder that prints what a test says."""
    program = folder / PROGRAM
    texts = {"gpus": gpus, "apps": apps, "looks": looks, "refused": refused}
    program.write_text(SCRIPT.format(**{name: text.replace("\n", "\\n") for name, text in texts.items()}))
    program.chmod(0o755)


def test_every_field_is_read_in_base_units() -> None:
    first, second = parse_gpus(TWO)
    assert (first.driver, first.address, first.is_divided) == ("550.90.07", "00000000:1b:00.0", False)
    assert (first.most_clock_hz, first.power_limit_watts, first.used_bytes) == (1.98e9, 700.0, 4 * 2.0**20)
    assert second.is_divided


def test_what_a_gpu_does_not_have_is_null() -> None:
    (gpu,) = parse_gpus(OLD)
    assert (gpu.most_clock_hz, gpu.power_limit_watts, gpu.is_divided) == (None, None, False)


def test_a_driver_that_knows_no_slices_is_asked_without_them(driver: Path) -> None:
    install(driver, gpus="GPU-1, 00000000:04:00.0, 418.226.00, 1380, 250.00, 553\n", refused="mig.mode.current")
    (gpu,) = driver_gpus()
    assert (gpu.driver, gpu.used_bytes, gpu.is_divided) == ("418.226.00", 553 * 2.0**20, False)


def test_messages_are_no_gpus() -> None:
    assert parse_gpus("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n") == ()


def test_looks_cut_off_or_without_a_clock_are_told_apart() -> None:
    looks = parse_samples("1755, 0x0000000000000004\n[N/A], 0x0000000000000001\n1740, 0x00000000")
    assert looks == ((1.755e9, 4), (None, 1))


def test_without_the_program_there_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ask("-L") is None
    assert driver_gpus() == ()


def test_a_process_of_others_is_refused_with_what_to_do(driver: Path) -> None:
    install(driver, apps="4242\n4243\n")
    gpu = driver_gpus()[0]
    assert computing_processes(gpu) == (4242, 4243)
    with pytest.raises(CannotRun, match=r"2 other processes on GPU GPU-8f6d.*which hold 4 MiB.*end them or wait"):
        refuse_busy(gpu, others_on(gpu))


def test_who_comes_while_something_is_measured_is_counted_beside_this_process(
    driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart = subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
    gpu = parse_gpus(TWO)[0]
    counts = []
    for pids in ([], [os.getpid()], [4_194_301], [os.getpid(), apart.pid], [4_194_301, 4_194_302, 4_194_303]):
        install(driver, apps="".join(f"{pid}\n" for pid in pids))
        counts.append(others_beside(gpu))
    assert counts == [0, 0, 0, 1, 2]

    install(driver, apps=f"{os.getpid()}\n{apart.pid}\n")
    before = Environment(kind="cuda", device="x", devices=1, memory_bytes=8e10)
    monkeypatch.setattr(devices, "driver_gpu", lambda _: gpu)
    monkeypatch.setattr(devices, "environment_of", lambda *_: before)
    with devices.watched("cuda:0", driver) as around:
        assert around.environment.other_processes == 0
    assert around.environment.other_processes == 1
    apart.kill()
    apart.wait()


def test_memory_that_a_container_cannot_explain_is_somebody(driver: Path) -> None:
    install(driver, gpus=TWO.replace(", 4, ", ", 40000, "))
    assert others_on(driver_gpus()[0]) == 1


def test_an_idle_gpu_and_a_slice_are_not_refused(driver: Path) -> None:
    install(driver)
    for gpu in (*driver_gpus(), None):
        assert others_on(gpu) == 0
        refuse_busy(gpu, 0)


@pytest.mark.parametrize("refused", ["clocks_event_reasons.active", "clocks_throttle_reasons.active"])
def test_a_watch_sees_what_ran_under_either_name_of_the_field(driver: Path, refused: str) -> None:
    looks = "345, 0x0000000000000001\n1980, 0x0000000000000000\n1590, 0x0000000000000044\n"
    install(driver, looks=looks, refused=refused)
    gpu = driver_gpus()[0]
    with sampling(gpu, driver / "looks.csv"):
        while len((driver / "looks.csv").read_text()) < len(looks):
            pass
    assert samples_in(driver / "looks.csv") == ((1.98e9, 0), (1.59e9, 0x44))


def test_nothing_is_watched_without_a_driver(tmp_path: Path) -> None:
    with sampling(None, tmp_path / "looks.csv"):
        pass
    assert samples_in(tmp_path / "looks.csv") == ()


def test_a_gpu_is_told_by_all_of_its_fields() -> None:
    assert {type(gpu) for gpu in parse_gpus(TWO + OLD)} == {DriverGpu}


@pytest.fixture
def _no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)


@pytest.mark.usefixtures("_no_torch")
def test_a_checkout_is_told_its_own_extra_which_brings_torch() -> None:
    assert str(devices.missing_torch()).endswith("pip install '.[measure]'")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert any(needed.startswith("torch") for needed in extras["measure"])


@pytest.mark.usefixtures("_no_torch")
def test_an_image_is_told_what_the_extra_would_bring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(devices, "CHECKOUT", tmp_path)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert [str(devices.missing_torch()).rpartition("pip install ")[2]] == [f"'{one}'" for one in extras["measure"]]
