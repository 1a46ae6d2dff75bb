"""torchtitan from 0.3 on: the flags beside --module and --config, over what the configuration that they name sets.

Source: torchtitan 0.3.0 config/manager.py, config/configs.py (defaults), models/*/config_registry.py;
pytorch/torchtitan@b5bcd76 config/configs.py (lengths and batches in tokens).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from service.formats import drafts, rules
from service.formats.composed import PROCESSES, PROGRAM
from service.formats.frameworks import torchtitan
from service.formats.text import Entry
from service.text_bounds import Place

_TABLE = rules.framework_table("torchtitan_module", *drafts.FATES, "configurations")

CONFIGURATIONS: Mapping[str, Mapping[str, Any]] = _TABLE["configurations"]
"""What each configuration sets, by --module and --config."""

_RULES = torchtitan.RULES["0.3"]

FATES = drafts.fates_of(_RULES, _TABLE)

_NO = "no_"
"""Start of a switch's name that turns it off."""

_OWN = ("flavor", "recompute", "whole_loss", "unread")
"""What a configuration's row holds beside settings."""


def read_torchtitan_module(entries: Sequence[Entry]) -> drafts.Draft:
    """The draft of torchtitan's flags."""
    apart = {entry.name: entry for entry in entries if entry.name in (PROGRAM, PROCESSES)}
    draft = drafts.draft_of([_flag(entry) for entry in entries if entry.name not in apart], FATES)
    module, config = draft.get("module", "").removeprefix("torchtitan.models."), draft.get("config", "")
    row = CONFIGURATIONS.get(f"{module} {config}")
    if row is None:
        fix = "name one of torchtitan 0.3.0, such as llama3_8b, or state the question itself"
        raise draft.wrong("config", "not_known", "is no configuration that is known of this module", fix)
    given = {
        name: tuple(value) if isinstance(value, list) else value for name, value in row.items() if name not in _OWN
    }
    draft.settings = {**given, **draft.settings}
    draft.settings["activation_checkpoint.mode"] = row["recompute"]
    draft.settings["activation_checkpoint.selective_ac_option"] = "op"
    _put_tokens(draft)
    torchtitan.complete(draft, module, row["flavor"], _RULES)
    _put_rest(draft, row)
    if PROCESSES in apart:
        _put_data(draft, apart[PROCESSES].value)
    return draft


def _flag(entry: Entry) -> Entry:
    """A flag with underscores in its name, a truth value where it is a switch, and a list where it takes one."""
    section, dot, name = entry.name.replace("-", "_").rpartition(".")
    value: Any = entry.value
    words = value if isinstance(value, tuple) else (value,)
    if name.startswith(_NO) and not words:
        return Entry(f"{section}{dot}{name.removeprefix(_NO)}", value=False, place=entry.place)
    whole = f"{section}{dot}{name}"
    if len(words) == 1 and str(words[0]).lower() in ("true", "false"):
        value = str(words[0]).lower() == "true"
    elif FATES.types.get(whole) is rules.items:
        value = tuple(part.strip("[]'\" ") for word in words for part in str(word).split(","))
    return replace(entry, name=whole, value=value)


def _put_tokens(draft: drafts.Draft) -> None:
    """Lengths and batches that main counts in tokens, as 0.3 has them in sequences."""
    settings = draft.settings
    length = settings["training.seq_len"] = draft.get("training.max_context_length", settings["training.seq_len"])
    each, whole = (draft.get(f"training.num_tokens_per_{part}", 0) for part in ("microbatch_per_dp_rank", "train_step"))
    if each > 0:
        settings["parallelism.pipeline_parallel_microbatch_size"] = max(1, each // length)
        count = draft.get("parallelism.num_pp_microbatches", 1)
        pipelined = draft.get("parallelism.pipeline_parallel_degree", 1) > 1
        settings["training.local_batch_size"] = max(1, each // length) * (count if pipelined else 1)
    if whole > 0:
        settings["training.global_batch_size"] = max(1, whole // length)


def _put_rest(draft: drafts.Draft, row: Mapping[str, Any]) -> None:
    layout, recipe = draft.layout, draft.recipe
    recipe["optimizer"] = "adamw"
    layout["sequence_parallel"] = layout["tensor"] > 1 and draft.get("parallelism.enable_sequence_parallel", True)
    graphs = not draft.get("training.disable_cuda_graphs") and layout["pipeline"] == 1
    recipe["stack"]["cuda_graphs"] = graphs and recipe["stack"]["implementation"] == "compiled"
    if graphs and not recipe["stack"]["cuda_graphs"]:
        why = "the step is captured as a graph, whose layers are not compiled"
        draft.not_understood("training.disable_cuda_graphs", why)
    if not row.get("whole_loss"):
        recipe["stack"]["cross_entropy"] = "chunked"
    if row.get("unread"):
        draft.not_understood("config", row["unread"])


def _put_data(draft: drafts.Draft, processes: int) -> None:
    """The replicas of as many processes, where the flags leave them open."""
    layout = draft.layout
    others = prod(layout[axis] for axis in ("tensor", "context", "pipeline"))
    if "data" not in layout and isinstance(processes, int) and processes % others == 0:
        layout["data"] = processes // others
        draft.assumptions = [note for note in draft.assumptions if "what is left" not in note]


SCRIPT = "run_train.sh"
"""The script, which takes some options from variables before it."""


_VARIABLES = {"MODULE": "module", "CONFIG": "config", "NGPU": PROCESSES}
"""Settings that the variables become."""


def variable_entries(words: Sequence[tuple[str, Place]]) -> Iterator[Entry]:
    """The settings that variables before the script become; NGPU is 8 where it is not set."""
    given = {name: (value, place) for word, place in words for name, _, value in [word.partition("=")]}
    if given.keys() & {"MODULE", "CONFIG"}:
        given = {"NGPU": ("8", Place(1, 1)), "MODULE": ("llama3", Place(1, 1)), **given}
    for name, setting in _VARIABLES.items():
        if name in given:
            value, place = given[name]
            yield Entry(setting, int(value) if value.isdecimal() and len(value) < 10 else (value,), place)
