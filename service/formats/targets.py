"""Targets that questions are written for, and formats that are read back: one row each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from service.formats.frameworks.accelerate import ACCELERATE, read_accelerate
from service.formats.frameworks.deepspeed import DEEPSPEED, read_deepspeed
from service.formats.frameworks.megatron import MEGATRON_LM, read_megatron
from service.formats.frameworks.megatron_bridge import MEGATRON_BRIDGE
from service.formats.frameworks.nanotron import NANOTRON, read_nanotron
from service.formats.frameworks.torchtitan import TORCHTITAN, read_torchtitan
from service.formats.launchers.clouds import DSTACK, SKYPILOT
from service.formats.launchers.kubernetes import JOBSET, PYTORCHJOB, TRAINJOB, VOLCANO
from service.formats.launchers.ray import RAY_TRAIN
from service.formats.launchers.slurm import SBATCH
from service.formats.launchers.torchrun import TORCHRUN
from service.formats.rules import TARGETS_TABLE, Draft, Target
from service.formats.text import Entry, read_arguments, read_json, read_toml, read_yaml

_TARGETS = (
    MEGATRON_LM,
    MEGATRON_BRIDGE,
    TORCHTITAN,
    NANOTRON,
    DEEPSPEED,
    ACCELERATE,
    TORCHRUN,
    SBATCH,
    TRAINJOB,
    PYTORCHJOB,
    JOBSET,
    VOLCANO,
    SKYPILOT,
    DSTACK,
    RAY_TRAIN,
)

TARGETS: Mapping[str, Target] = {target.name: target for target in _TARGETS}

if [*TARGETS] != [*TARGETS_TABLE["targets"]]:
    raise ValueError("targets.toml and its module differ in the targets or their order")


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    name: str
    meaning: str
    entries: Callable[[str], tuple[Entry, ...]]
    read: Callable[[Sequence[Entry]], Draft]
    source: str
    """Tool and version or commit that its fields and defaults come from."""


_SYNTAXES: Mapping[str, Callable[[str], tuple[Entry, ...]]] = {
    "arguments": read_arguments, "json": read_json, "toml": read_toml, "yaml": read_yaml,
}  # fmt: skip

_READERS: Mapping[str, Callable[[Sequence[Entry]], Draft]] = {
    "megatron-lm": read_megatron,
    "nanotron": read_nanotron,
    "torchtitan": read_torchtitan,
    "deepspeed": read_deepspeed,
    "accelerate": read_accelerate,
}

FORMATS: Mapping[str, Format] = {
    name: Format(
        name=name, meaning=row["meaning"], entries=_SYNTAXES[row["syntax"]], read=_READERS[name], source=row["source"]
    )
    for name, row in TARGETS_TABLE["formats"].items()
}
