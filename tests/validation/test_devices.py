"""A driver's name leads to one GPU of the catalogue, and a slice of a GPU to none."""

import pytest

from service.answers.workers import Capabilities, Device
from service.catalogue import shipped_catalogue
from service.validation.devices import gpu_of_device, with_catalogue_names

MEBIBYTE = 2.0**20


@pytest.mark.parametrize(
    ("name", "mebibytes", "gpu"),
    [
        ("NVIDIA H100 80GB HBM3", 81_559, "h100-sxm5-80gb"),
        ("nvidia h100  80gb hbm3", 81_559, "h100-sxm5-80gb"),
        ("NVIDIA H100 PCIe", 81_559, "h100-pcie-80gb"),
        ("NVIDIA A100-SXM4-40GB", 40_960, "a100-sxm4-40gb"),
        ("Tesla T4", 15_360, "t4"),
        ("NVIDIA A10G", 23_028, "a10g"),
        ("AMD Instinct MI300X", 196_592, "mi300x-192gb"),
        ("NVIDIA H100 80GB HBM3", None, "h100-sxm5-80gb"),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", 9_856, None),
        ("NVIDIA A100-SXM4-80GB", 9_856, None),
        ("AMD Instinct MI250X", 65_520, None),
        ("H100", 81_559, None),
        ("NVIDIA H100", 81_559, None),
    ],
)
def test_a_driver_s_name_stands_for_one_gpu_of_its_memory(name: str, mebibytes: int | None, gpu: str | None) -> None:
    memory_bytes = None if mebibytes is None else mebibytes * MEBIBYTE
    assert gpu_of_device(name, memory_bytes, shipped_catalogue()) == gpu


def test_what_a_worker_takes_its_devices_for_does_not_count() -> None:
    told = Capabilities(devices=(Device(name="Tesla T4", gpu="h100-sxm5-80gb"), Device(name="Voodoo 2", gpu="t4")))
    assert [device.gpu for device in with_catalogue_names(shipped_catalogue(), told).devices] == ["t4", None]
