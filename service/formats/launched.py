"""Command lines that start a training: the options of its program, and what the launcher before it sets.

Source: accelerate 1.15.0 commands/launch.py (options that its file's settings become); torch 2.13 distributed/run.py;
deepspeed 0.19.8 launcher/runner.py.
"""

from collections.abc import Iterator, Sequence

from service.formats.composed import PROGRAM, overrides_in
from service.formats.frameworks import litgpt, torchtitan_module
from service.formats.frameworks.megatron_core import megatron_bridge_recipes, nemo
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
        return checked_once(litgpt.command_entries(words[1:]))
    if _base(words, 0) == "nemo" and len(words) > 2 and words[1][0] == "llm":
        return checked_once(nemo.command_entries(words[2:]))
    program = max((number for number in range(len(words)) if _is_program(words, number)), default=-1)
    if program < 0:
        return options_in(words)
    before, rest = words[:program], words[program + 1 :]
    name = Entry(PROGRAM, _base(words, program), words[program][1])
    if name.value == torchtitan_module.SCRIPT:
        return checked_once((*torchtitan_module.variable_entries(before), name, *options_in(rest)))
    if name.value in megatron_bridge_recipes.SCRIPTS:
        return checked_once((*_launcher(before), name, *megatron_bridge_recipes.command_entries(rest)))
    own = checked_once(overrides_in(rest)) if _is_composed(words, program) else options_in(rest)
    return (*_launcher(before), name, *own)


def _is_program(words: Sequence[tuple[str, Place]], number: int) -> bool:
    """Whether a word is a script, a module, a recipe, or what a console program is asked to do."""
    word = words[number][0]
    before = _base(words, number - 1)
    is_task = before in ("trl", "llamafactory-cli") and not word.startswith("-")
    is_module = before == "--module" and any(_base(words, one) == "deepspeed" for one in range(number))
    is_recipe = _is_tune(words) and number + 1 < len(words) and words[number + 1][0].startswith("--config")
    return word.endswith((".py", torchtitan_module.SCRIPT)) or before == "-m" or is_module or is_task or is_recipe


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
