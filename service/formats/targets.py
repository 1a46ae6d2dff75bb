"""Targets that questions are written for, and formats that are read back: one row each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from service.formats.drafts import Draft, Fates
from service.formats.frameworks import (
    accelerate,
    axolotl,
    deepspeed,
    lightning,
    litgpt,
    llama_factory,
    llm_foundry,
    maxtext,
    nanotron,
    torchtitan,
    torchtitan_module,
    torchtune,
    transformers,
    verl,
)
from service.formats.frameworks.megatron_core import (
    bridge_program,
    megatron,
    megatron_bridge,
    megatron_bridge_recipes,
    megatron_yaml,
    nemo,
)
from service.formats.launchers.clouds import DSTACK, SKYPILOT
from service.formats.launchers.kubernetes import JOBSET, PYTORCHJOB, TRAINJOB, VOLCANO
from service.formats.launchers.ray import RAY_TRAIN
from service.formats.launchers.slurm import SBATCH
from service.formats.launchers.torchrun import TORCHRUN
from service.formats.recognise import syntax_of
from service.formats.rules import TARGETS_TABLE, Target
from service.formats.text import Entry, read_json, read_toml, read_yaml
from service.formats.training import training_in

_TARGETS = (
    megatron.MEGATRON_LM,
    megatron_bridge.MEGATRON_BRIDGE,
    torchtitan.TORCHTITAN,
    nanotron.NANOTRON,
    deepspeed.DEEPSPEED,
    accelerate.ACCELERATE,
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
    syntax: str
    """arguments, json, toml or yaml; any for what a text looks like."""
    entries: Callable[[str], tuple[Entry, ...]]
    read: Callable[[Sequence[Entry]], Draft]
    fates: Fates
    """Fates of the tool's settings."""
    source: str
    """Tool and version or commit that its fields and defaults come from."""
    takes_launcher: bool = False
    """Whether its reader takes the program and the processes that a command starts."""
    covers: str = ""
    """The releases or the commit whose files are read; those of the source where empty."""


def read_any(text: str) -> tuple[Entry, ...]:
    """The settings of a file in the syntax that it looks like."""
    syntax = syntax_of(text)
    return SYNTAXES[syntax](text)


def read_command(text: str) -> tuple[Entry, ...]:
    """The options of a command, or of the one that trains in a script."""
    found = training_in(text, any_program=True)
    return found.settled(found.entries)


SYNTAXES: Mapping[str, Callable[[str], tuple[Entry, ...]]] = {
    "arguments": read_command, "json": read_json, "toml": read_toml, "yaml": read_yaml,
    "python": bridge_program.read_program, "any": read_any,
}  # fmt: skip

_READERS: Mapping[str, tuple[Callable[[Sequence[Entry]], Draft], Fates]] = {
    "megatron-lm": (megatron_yaml.read_arguments, megatron.FATES),
    "megatron-yaml": (megatron_yaml.read_megatron_yaml, megatron_yaml.FATES),
    "nanotron": (nanotron.read_nanotron, nanotron.FATES),
    "torchtitan": (torchtitan.read_torchtitan, torchtitan.FATES),
    "nemo": (nemo.read_nemo, nemo.FATES),
    "megatron-bridge": (megatron_bridge_recipes.read_megatron_bridge, megatron_bridge_recipes.FATES),
    "verl": (verl.read_verl, verl.FATES),
    "torchtitan-module": (torchtitan_module.read_torchtitan_module, torchtitan_module.FATES),
    "deepspeed": (deepspeed.read_deepspeed, deepspeed.FATES),
    "accelerate": (accelerate.read_accelerate, accelerate.FATES),
    "transformers": (transformers.read_transformers, transformers.FATES),
    "trl": (transformers.read_trl, transformers.FATES),
    "axolotl": (axolotl.read_axolotl, axolotl.FATES),
    "litgpt": (litgpt.read_litgpt, litgpt.FATES),
    "llm-foundry": (llm_foundry.read_llm_foundry, llm_foundry.FATES),
    "maxtext": (maxtext.read_maxtext, maxtext.FATES),
    "lightning": (lightning.read_lightning, lightning.FATES),
    "torchtune": (torchtune.read_torchtune, torchtune.FATES),
    "llama-factory": (llama_factory.read_llama_factory, llama_factory.FATES),
}

FORMATS: Mapping[str, Format] = {
    name: Format(name=name, entries=SYNTAXES[row["syntax"]], read=_READERS[name][0], fates=_READERS[name][1], **row)
    for name, row in TARGETS_TABLE["formats"].items()
}
