"""Machines of clouds by their names: which GPU, and how many of it."""

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from service.catalogue.indexes import normal
from service.catalogue.shipped import csv_rows


class Machine(NamedTuple):
    """What a cloud's name of a machine says."""

    gpu: str
    gpus: int


def machine_named(name: str) -> Machine | None:
    """The machine that a name means; None for another name.

    >>> machine_named("Standard_ND96isr_H100_v5"), machine_named("AWS p4d.24xlarge"), machine_named("H100")
    (Machine(gpu='h100-sxm5-80gb', gpus=8), Machine(gpu='a100-sxm4-40gb', gpus=8), None)
    """
    return _machines().get(normal(name).removeprefix("standard"))


@cache
def _machines() -> Mapping[str, Machine]:
    return {normal(row["instance_type"]): Machine(row["gpu"], int(row["gpus"])) for row in csv_rows("machines.csv")}
