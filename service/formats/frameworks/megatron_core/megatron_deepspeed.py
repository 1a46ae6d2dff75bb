"""Megatron-DeepSpeed: Megatron-LM's arguments where DeepSpeed runs the step, by a file of its own.

Source: argonne-lcf/Megatron-DeepSpeed megatron/arguments.py (deepspeed-activation-checkpointing, use-flash-attn-v2,
ds-sequence-parallel-size), megatron/training.py (deepspeed.initialize).
"""

from collections.abc import Sequence
from dataclasses import replace

from service.formats.composed import PROGRAM
from service.formats.drafts import Draft, Setting, draft_of, under
from service.formats.frameworks.deepspeed import deepspeed_draft
from service.formats.frameworks.megatron_core import megatron
from service.formats.frameworks.trainer import DEEPSPEED
from service.formats.text import Entry

_FILE = f"{DEEPSPEED}_config"
_START = f"{DEEPSPEED}."
_LEAST = {"virtual_pipeline": 1, "expert": 1, "embedding_in_split": False, "loss_in_split": False}
"""Fields of a layout that DeepSpeed has no other values of."""
_OF_LAYERS = (
    "swiglu",
    "normalization",
    "position-embedding-type",
    "use-rotary-position-embeddings",
    "group-query-attention",
)
"""Options of layers that programs whose models have layers of their own leave out."""
_SWITCHES = {
    DEEPSPEED: "DeepSpeed runs the step, by its file",
    _FILE: "its settings are under the switch's name",
    "zero-stage": "the stage is that of DeepSpeed's file",
    "deepspeed-activation-checkpointing": "DeepSpeed's function keeps what torch's keeps",
    "no-pipeline-parallel": "one stage is the whole model either way",
    "no-masked-softmax-fusion": "scores are kept whole either way",
}
_KERNELS = {"use-flash-attn": "flash", "use-flash-attn-v1": "flash", "use-flash-attn-triton": "flash"} | {
    "use-flash-attn-v2": "flash-2"
}


def read_megatron(entries: Sequence[Entry]) -> Draft:
    """Draft of Megatron-LM's arguments, or of those of Megatron-DeepSpeed with the file beside them.

    Without that file DeepSpeed's switches are listed.
    """
    program = next((entry for entry in entries if entry.name == PROGRAM), None)
    draft = _read([entry for entry in entries if entry.name != PROGRAM])
    if program is not None and not {*_OF_LAYERS} & draft.fates.keys():
        draft.fates[PROGRAM] = Setting(program, "not_understood", "it may build other layers than the arguments say")
    elif program is not None:
        draft.assumptions.append(f"{program.value} builds the layers that its arguments say, as pretrain_gpt.py does")
    return draft


def _read(entries: Sequence[Entry]) -> Draft:
    beside = [replace(one, name=one.name.removeprefix(_START)) for one in entries if one.name.startswith(_START)]
    if DEEPSPEED not in {entry.name for entry in entries} or not beside:
        return megatron.read_megatron(entries)
    draft = draft_of([entry for entry in entries if not entry.name.startswith(_START)], megatron.FATES)
    megatron.complete(draft)
    _put_deepspeed(draft, deepspeed_draft(beside))
    return draft


def _put_deepspeed(draft: Draft, beside: Draft) -> None:
    """What DeepSpeed makes of the arguments: its states, and Megatron's older layers and names."""
    recipe, layout = draft.recipe, draft.layout
    layout["zero_stage"], layout["offload"] = beside.layout["zero_stage"], beside.layout["offload"]
    for field in (
        "rank_order",
        "sequence_parallel",
        *(one for one, least in _LEAST.items() if layout.get(one) == least),
    ):
        layout.pop(field, None)
    _put_sequence_ranks(draft)
    recipe["stack"] = beside.recipe["stack"]
    for field in ("gradient_dtype", "fp8_weights"):
        recipe.pop(field, None)
    kernels = [kernel for name, kernel in _KERNELS.items() if name in draft.fates]
    recipe["attention"] = kernels[0] if kernels else "eager"
    for name, why in _SWITCHES.items():
        draft.without_effect(name, why)
    for name in _KERNELS:
        _understand(draft, name)
    if draft.get("num-experts"):
        draft.not_understood(
            "num-experts", "DeepSpeed's layers of experts are every second one, split in their own way"
        )
    if "cpu-optimizer" in draft.fates and layout["offload"] in ("optimizer", "model"):
        draft.without_effect("cpu-optimizer", "the optimizer that DeepSpeed's file offloads runs there anyway")
    draft.fates |= under(DEEPSPEED, beside.fates)


def _put_sequence_ranks(draft: Draft) -> None:
    name = "ds-sequence-parallel-size"
    if name not in draft.fates:
        return
    word = str(draft.fates[name].entry.word)
    if not (word.isdecimal() and word.isascii() and len(word) < _LONGEST and int(word)):
        raise draft.wrong(name, "not_a_whole_number", "is not a whole number", "give a whole number")
    _understand(draft, name)
    if int(word) > 1:
        draft.layout |= {"context": int(word), "context_method": "ulysses"}


_LONGEST = 6
"""Digits of a number of ranks."""


def _understand(draft: Draft, name: str) -> None:
    if name in draft.fates:
        draft.fates[name] = Setting(draft.fates[name].entry, "understood")
