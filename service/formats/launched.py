"""Command lines of scripts around Hugging Face's Trainer: their options, and what the launcher before them sets.

Source: accelerate 1.15.0 commands/launch.py (options that its file's settings become); torch 2.13 distributed/run.py;
deepspeed 0.19.8 launcher/runner.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from service.formats.composed import PROCESSES, PROGRAM, overrides_in
from service.formats.frameworks.trainer import ACCELERATE
from service.formats.text import Entry, checked_once, options_in
from service.text_bounds import Place

_KINDS = {"multi_gpu": "MULTI_GPU", "use_deepspeed": "DEEPSPEED", "use_fsdp": "FSDP"}
"""Switches of accelerate launch, and the distributed_type of its file."""

_TOP = ("num_processes", "num_machines", "mixed_precision")

_SECTIONS = {
    "fsdp_": "fsdp_config.",
    "parallelism_config_": "parallelism_config.",
    "dynamo_": "dynamo_config.",
    "deepspeed_": "deepspeed_config.",
    "zero_stage": "deepspeed_config.",
    "zero3_": "deepspeed_config.",
    "offload_": "deepspeed_config.",
    "gradient_accumulation_steps": "deepspeed_config.",
    "gradient_clipping": "deepspeed_config.",
}
"""Sections of accelerate's file by the starts of their options."""

_CONFIG = ("config_file",)

_KINDS_OF_FINETUNE = ("lora", "full", "adapter", "adapter_v2")
"""Words after finetune of LitGPT's older releases."""

_RUN_TRAIN = "run_train.sh"
"""torchtitan's script, which takes some options from variables before it."""

_VARIABLES = {"MODULE": "module", "CONFIG": "config", "NGPU": PROCESSES}
"""Settings that the variables become."""


def read_words(words: Sequence[tuple[str, Place]]) -> tuple[Entry, ...]:
    """The options of a command, and those of its launcher as the settings of accelerate's file.

    >>> words = [(word, Place(1, 1)) for word in "torchrun --nproc-per-node=8 --nnodes 2 train.py --bf16".split()]
    >>> [(one.name, one.value) for one in read_words(words)]
    [('accelerate.num_processes', 16), ('program', 'train.py'), ('bf16', ())]
    >>> words = [(word, Place(1, 1)) for word in "tune run --nproc_per_node 2 full --config c.yaml seed=4".split()]
    >>> [(one.name, one.value) for one in read_words(words)]
    [('accelerate.num_processes', 2), ('program', 'full'), ('config', ('c.yaml',)), ('seed', ('4',))]
    """
    words = _from_tool(words)
    if _base(words, 0) == "litgpt" and len(words) > 1:
        return checked_once(_litgpt(words[1:]))
    if _base(words, 0) == "nemo" and len(words) > 2 and words[1][0] == "llm":
        return checked_once(_nemo(words[2:]))
    program = max((number for number in range(len(words)) if _is_program(words, number)), default=-1)
    if program < 0:
        return options_in(words)
    word, place = words[program]
    rest = words[program + 1 :]
    if word.endswith(_RUN_TRAIN):
        return checked_once(
            (*_variables(words[:program]), Entry(PROGRAM, word.rpartition("/")[2], place), *options_in(rest))
        )
    if _base(words, program) in _RUN_RECIPE:
        return checked_once((*_launcher(words[:program]), Entry(PROGRAM, _base(words, program), place), *_bridge(rest)))
    return (
        *_launcher(words[:program]),
        Entry(PROGRAM, word.rpartition("/")[2], place),
        *(checked_once(overrides_in(rest)) if _is_composed(words, program) else options_in(rest)),
    )


def _is_program(words: Sequence[tuple[str, Place]], number: int) -> bool:
    """Whether a word is a script, a module, a recipe, or what a console program is asked to do."""
    word = words[number][0]
    before = _base(words, number - 1)
    is_task = before in ("trl", "llamafactory-cli") and not word.startswith("-")
    is_recipe = _is_tune(words) and number + 1 < len(words) and words[number + 1][0].startswith("--config")
    return word.endswith((".py", _RUN_TRAIN)) or before == "-m" or is_task or is_recipe


def _variables(words: Sequence[tuple[str, Place]]) -> Iterator[Entry]:
    """The settings that variables before torchtitan's script become; NGPU is 8 unless they say it."""
    given = {name: (value, place) for word, place in words for name, _, value in [word.partition("=")]}
    if given.keys() & {"MODULE", "CONFIG"}:
        given = {"NGPU": ("8", Place(1, 1)), "MODULE": ("llama3", Place(1, 1)), **given}
    for name, setting in _VARIABLES.items():
        if name in given:
            value, place = given[name]
            yield Entry(setting, int(value) if value.isdecimal() and len(value) < 10 else (value,), place)


def _base(words: Sequence[tuple[str, Place]], number: int) -> str:
    return words[number][0].rpartition("/")[2] if number >= 0 else ""


def _from_tool(words: Sequence[tuple[str, Place]]) -> Sequence[tuple[str, Place]]:
    """The words from a tool's own program on, without the scheduler's before it."""
    for number in range(len(words) - 1):
        after = words[number + 1][0]
        name = _base(words, number)
        if (name == "tune" and after == "run") or (name == "litgpt" and after.startswith(("finetune", "pretrain"))):
            return words[number:]
    return words


def _is_tune(words: Sequence[tuple[str, Place]]) -> bool:
    """Whether torchtune's program starts a recipe."""
    return len(words) > 1 and _base(words, 0) == "tune" and words[1][0] == "run"


def _litgpt(words: Sequence[tuple[str, Place]]) -> Iterator[Entry]:
    """What LitGPT's program is asked to do, the model that stands after it, and its options."""
    names = list(takewhile(lambda one: not one[0].startswith("--"), words))
    task, place = names[0] if names else ("", words[0][1])
    kind = names[1:2] if task == "finetune" and len(names) > 1 and names[1][0] in _KINDS_OF_FINETUNE else []
    yield Entry(PROGRAM, "_".join([task, *(word for word, _ in kind)]), place)
    for word, where in names[1 + len(kind) :][:1]:
        yield Entry("model_name" if task == "pretrain" else "checkpoint_dir", (word,), where)
    yield from overrides_in(words[len(names) :])


_RUN_RECIPE = ("run_recipe.py", "launch_with_nemo_run.py")
"""Megatron-Bridge's scripts, whose options stand beside changes of a recipe."""

_OF_BRIDGE = {
    "max_steps": "train.train_iters",
    "global_batch_size": "train.global_batch_size",
    "micro_batch_size": "train.micro_batch_size",
    "seq_length": "dataset.seq_length",
    **{name: f"model.{name}" for name in (
        "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size",
        "virtual_pipeline_model_parallel_size", "expert_model_parallel_size", "expert_tensor_parallel_size",
    )},
}  # fmt: skip
"""Fields that its options set."""

_SHORT = {
    "-ms": "max_steps", "-gb": "global_batch_size", "-mb": "micro_batch_size", "-sl": "seq_length",
    "-tp": "tensor_model_parallel_size", "-pp": "pipeline_model_parallel_size", "-cp": "context_parallel_size",
    "-vp": "virtual_pipeline_model_parallel_size", "-ep": "expert_model_parallel_size",
    "-etp": "expert_tensor_parallel_size",
}  # fmt: skip


def _bridge(words: Sequence[tuple[str, Place]]) -> Iterator[Entry]:
    """The recipe of run_recipe.py with its changes; a change by its field comes before one by its option."""
    spelled = [(f"--{_SHORT[word]}" if word in _SHORT else word, place) for word, place in words]
    found = {entry.name: entry for entry in overrides_in(spelled)}
    for name, entry in found.items():
        field = _OF_BRIDGE.get(name, name)
        if field == name or field not in found:
            yield replace(entry, name=field)


_OF_NEMO = {"-f": "--factory", "--yaml": "--config", "-y": "--yes"}
"""Options of nemo with the names under which its reader takes them."""


def _nemo(words: Sequence[tuple[str, Place]]) -> Iterator[Entry]:
    """What nemo llm is asked to do, its recipe, and the changes of it."""
    yield Entry(PROGRAM, *words[0])
    yield from overrides_in([(_OF_NEMO.get(word, word), place) for word, place in words[1:]])


def _is_composed(words: Sequence[tuple[str, Place]], program: int) -> bool:
    """Whether a file and its changes follow the program, and not options alone."""
    after = words[program + 1][0] if program + 1 < len(words) else "--"
    return _is_tune(words) or not after.startswith("--")


def _launcher(words: Sequence[tuple[str, Place]]) -> Iterator[Entry]:
    """What accelerate launch sets, or the number of processes of another launcher."""
    options = dict(_options(words))
    if [word for word, _ in words if word.rpartition("/")[2] == "accelerate"]:
        yield from _accelerate(options)
        return
    each = next((options[name] for name in ("nproc_per_node", "num_gpus", "nproc") if name in options), None)
    nodes = next((options[name] for name in ("nnodes", "num_nodes") if name in options), None)
    if each is not None and each.value.isdecimal() and (nodes is None or nodes.value.isdecimal()):
        count = int(each.value[:9]) * int(nodes.value[:9] if nodes else 1)
        yield Entry(f"{ACCELERATE}.num_processes", count, each.place)


def _accelerate(options: dict[str, Entry]) -> Iterator[Entry]:
    for name, entry in options.items():
        section = next((section for start, section in _SECTIONS.items() if name.startswith(start)), "")
        if name in _CONFIG:
            yield Entry(ACCELERATE, entry.value, entry.place)
        elif name in _KINDS:
            yield Entry(f"{ACCELERATE}.distributed_type", _KINDS[name], entry.place)
        elif section or name in _TOP:
            yield Entry(f"{ACCELERATE}.{section}{name}", _scalar(entry.value), entry.place)


def _options(words: Sequence[tuple[str, Place]]) -> Iterator[tuple[str, Entry]]:
    """Options before a program by name, with an underscore for each hyphen."""
    for number, (word, place) in enumerate(words):
        if not word.startswith("--"):
            continue
        name, equals, value = word[2:].partition("=")
        after = words[number + 1][0] if number + 1 < len(words) else ""
        name = name.replace("-", "_")
        yield name, Entry(name, value if equals else "" if after.startswith("-") else after, place)


def _scalar(word: str) -> int | bool | str:
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    return int(word) if word.isdecimal() and len(word) < 10 else word
