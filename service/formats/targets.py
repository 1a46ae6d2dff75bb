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
from service.formats.rules import Draft, Target
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
"""Every target by name: first those that configure training, then those that start it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One kind of file."""

    name: str
    """Its name in the path of a request."""
    meaning: str
    entries: Callable[[str], tuple[Entry, ...]]
    """Parser of its settings."""
    read: Callable[[Sequence[Entry]], Draft]
    """Conversion of the settings to a draft."""
    source: str
    """Tool and version or commit that its fields and defaults come from."""


_FORMATS = (
    Format(
        name="megatron-lm",
        meaning="arguments of Megatron-LM's pretrain_gpt.py, or the command that has them",
        entries=read_arguments,
        read=read_megatron,
        source="NVIDIA/Megatron-LM@d98e8a64 megatron/training/arguments.py",
    ),
    Format(
        name="nanotron",
        meaning="YAML of nanotron",
        entries=read_yaml,
        read=read_nanotron,
        source="huggingface/nanotron@2411b02 src/nanotron/config",
    ),
    Format(
        name="torchtitan",
        meaning="TOML of torchtitan up to 0.2",
        entries=read_toml,
        read=read_torchtitan,
        source="torchtitan 0.2.2 config/job_config.py",
    ),
    Format(
        name="deepspeed",
        meaning="JSON of DeepSpeed",
        entries=read_json,
        read=read_deepspeed,
        source="DeepSpeed 0.19.8 runtime/config.py",
    ),
    Format(
        name="accelerate",
        meaning="YAML of accelerate launch",
        entries=read_yaml,
        read=read_accelerate,
        source="accelerate 1.15.0 commands/config/config_args.py",
    ),
)

FORMATS: Mapping[str, Format] = {one.name: one for one in _FORMATS}
