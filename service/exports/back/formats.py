"""Which files can be read back as a recipe and a layout? One row each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from service.exports.back.accelerate import read_accelerate
from service.exports.back.arguments import read_arguments
from service.exports.back.deepspeed import read_deepspeed
from service.exports.back.draft import Draft
from service.exports.back.entries import Entry
from service.exports.back.json_entries import read_json
from service.exports.back.megatron import read_megatron
from service.exports.back.nanotron import read_nanotron
from service.exports.back.toml_entries import read_toml
from service.exports.back.torchtitan import read_torchtitan
from service.exports.back.yaml_entries import read_yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One kind of file."""

    name: str
    """Its name in the path of a request."""
    meaning: str
    """What it is."""
    entries: Callable[[str], tuple[Entry, ...]]
    """What it says, setting by setting."""
    read: Callable[[Sequence[Entry]], Draft]
    """What that becomes."""
    source: str
    """Tool and version or commit where its fields and defaults were read."""


_ROWS = (
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

FORMATS: Mapping[str, Format] = {one.name: one for one in _ROWS}
"""Every format by its name."""
