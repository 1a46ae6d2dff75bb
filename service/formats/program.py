"""Training programs: the command that a launcher's file starts, and the training that a shell script starts."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from math import gcd
from shlex import quote, split
from typing import Any

from service.answers.exports import NotExpressed
from service.errors import Problem, Refused
from service.estimator.question import Question, StackName
from service.estimator.software.stacks import software_of
from service.formats.frameworks.accelerate import ACCELERATE
from service.formats.frameworks.deepspeed import DEEPSPEED
from service.formats.frameworks.megatron import MEGATRON_LM, environment_of
from service.formats.frameworks.nanotron import NANOTRON
from service.formats.frameworks.torchtitan import TORCHTITAN
from service.formats.rules import ExportedFile, ExportRequest, Target, target_of
from service.formats.text import command_text
from service.text_bounds import FIELD, MOST_COMMANDS, Lines, refusal

PORT = 29500

SCRIPT = "train.py"
"""The caller's own script, for software that is a library."""

LONGEST_COMMAND = 4096

_END = "TRAINCOST_END"
"""End mark of a file inside a script; no written file contains it."""

_ALLOCATOR = "recipe.stack.expandable_segments"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The program of each rank."""

    words: tuple[str, ...]
    """The program and its arguments, as torchrun or accelerate launch take them."""
    files: Mapping[str, str]
    environment: Mapping[str, str]
    config: str | None
    """The file for accelerate launch; None if torchrun starts it."""
    target: str | None
    """The target that wrote it; None for a caller's own command."""
    not_expressible: tuple[NotExpressed, ...]
    assumptions: tuple[str, ...]
    instead: Mapping[str, Any] = field(default_factory=dict)
    """As that of an `ExportedFile`."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Processes of a job."""

    count: int
    gpus_each: int
    rank: str = ""
    """Shell word for the number of a node."""
    address: str = ""
    """Shell word for the address of the first one."""


def nodes_of(question: Question) -> Nodes:
    """Nodes of equal size, which every launcher needs."""
    cluster = question.cluster
    each = gcd(cluster.gpus, cluster.gpus_per_node)
    return Nodes(cluster.gpus // each, each)


_PROGRAMS: Mapping[StackName, tuple[Target, tuple[str, ...]]] = {
    "megatron-core": (MEGATRON_LM, ("pretrain_gpt.py",)),
    "torchtitan": (TORCHTITAN, ("-m", "torchtitan.train", "--job.config_file")),
    "nanotron": (NANOTRON, ("run_train.py", "--config-file")),
    "deepspeed": (DEEPSPEED, (SCRIPT, "--deepspeed_config")),
    "fsdp1": (ACCELERATE, (SCRIPT,)),
    "transformers": (ACCELERATE, (SCRIPT,)),
}
"""Target that configures each software, and the start of the program that reads its file."""


def program_of(request: ExportRequest) -> Program:
    """The program that a launcher's file starts."""
    if request.command is not None:
        return _callers_program(request.command)
    software = software_of(request.question.recipe)
    target, begins = _PROGRAMS[software.name]
    name, version = next(iter(target.versions.items()))
    written = target.write(ExportRequest(question=request.question, version=name))
    notes = []
    environment = environment_of(request.question) if target is MEGATRON_LM else {}
    if software.expandable_segments:
        environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    gaps = tuple(one for one in written.not_expressible if one.field != _ALLOCATOR)
    files = {version.file_name: written.content}
    words = (*begins, version.file_name)
    if target is MEGATRON_LM:
        files, words = {}, (*begins, *split(written.content.replace("\\\n", "")))
    else:
        notes.append(f"{version.file_name} is what POST /v1/exports/{target.name} gives in version {name}")
    if SCRIPT in begins:
        notes.append(f"{SCRIPT} stands for your own training script")
    config = version.file_name if target is ACCELERATE else None
    return Program(
        words=begins if config else words,
        files=files,
        environment=environment,
        config=config,
        target=target.name,
        not_expressible=gaps,
        assumptions=(*written.assumptions, *notes),
        instead=written.instead,
    )


def _callers_program(command: str) -> Program:
    try:
        words = tuple(split(command))
    except ValueError:
        words = ()
    if not words or len(command) > LONGEST_COMMAND:
        message = f"command is no command of 1 to {LONGEST_COMMAND} characters whose quotes are closed"
        fix = "give what torchrun is to start, such as train.py --lr 1e-4"
        raise Refused(Problem(field="command", code="not_a_command", message=message, fix=fix))
    is_python = words[0] in ("-m", "--module") or words[0].endswith(".py")
    message = "the command is your own, so nothing of it is written into the file"
    return Program(
        words=words if is_python else ("--no-python", *words),
        files={},
        environment={},
        config=None,
        target=None,
        not_expressible=tuple(
            NotExpressed(field=part, message=message, fix="say it in your command", left_open=True)
            for part in ("recipe", "layout", "model")
        ),
        assumptions=(),
    )


def launch_words(program: Program, nodes: Nodes) -> tuple[list[str], list[str]]:
    """The command that starts all ranks of one node, and its words that the shell expands."""
    if program.config is not None:
        words = ["accelerate", "launch", "--config_file", program.config]
        if nodes.count > 1:
            words += [
                "--machine_rank",
                nodes.rank,
                "--main_process_ip",
                nodes.address,
                "--main_process_port",
                str(PORT),
            ]
    elif nodes.count > 1:
        words = ["torchrun", "--nnodes", str(nodes.count), "--nproc-per-node", str(nodes.gpus_each)]
        words += ["--node-rank", nodes.rank, "--master-addr", nodes.address, "--master-port", str(PORT)]
    else:
        words = ["torchrun", "--standalone", "--nnodes", "1", "--nproc-per-node", str(nodes.gpus_each)]
    return [*words, *program.words], [nodes.rank, nodes.address] if nodes.count > 1 else []


def script_of(program: Program, nodes: Nodes, *, before: str = "") -> str:
    """Shell commands for one node: write the files, set the environment, launch all ranks."""
    words, raw = launch_words(program, nodes)
    files = [f"cat > {quote(name)} <<'{_END}'\n{text}{_END}\n" for name, text in program.files.items()]
    variables = [f"export {name}={quote(value)}\n" for name, value in program.environment.items()]
    return "".join([before, *files, *variables, command_text(words, raw), "\n"])


SCRIPT_FORMAT = "script"
"""Name of scripts among the kinds of files."""

_HERE = re.compile(r"<<-?\s{0,9}(?P<quote>['\"]?)(?P<end>\w{1,80})(?P=quote)(?:\s{0,9}>\s{0,9}(?P<after>\S{1,255}))?")
"""A here-document, and the file after it that it is written into."""

_BEFORE = re.compile(r"cat\s{0,9}>\s{0,9}(\S{1,255}) {0,9}\Z")
"""The file before it that a here-document is written into."""

_BEFORE_CHARACTERS = 300
"""Characters before a here-document to search for such a file."""

_COMMANDS = (
    ("megatron-lm", re.compile(r"pretrain_\w{1,40}\.py(?=\s)"), False),
    ("torchtitan", re.compile(r"--job\.config_file[=\s]{1,9}(\S{1,255})"), True),
    ("nanotron", re.compile(r"run_train\.py\s.{0,400}?--config-file[=\s\\]{1,9}(\S{1,255})", re.DOTALL), True),
    ("deepspeed", re.compile(r"--deepspeed(?:_config)?[=\s]{1,9}(\S{1,255})"), True),
    ("accelerate", re.compile(r"accelerate\s+launch\s.{0,400}?--config_file[=\s\\]{1,9}(\S{1,255})", re.DOTALL), True),
)
"""Commands that train, and whether they name a configuration file; bounded, for scripts are hostile."""

_AROUND_TRAINER = re.compile(r"--(?:per_device_train_batch_size|finetuning_type|model_name_or_path)(?=[=\s\\])")
"""Arguments of scripts around Hugging Face's Trainer."""

_NAMED_CONFIG = re.compile(
    r"(?:axolotl(?:\.cli\.|\s{1,9})train|llamafactory-cli\s{1,9}train|trl\s{1,9}[a-z]{2,9}\s{1,9}--config)[=\s\\]{1,9}(\S{1,255})"
)
"""Programs around Trainer that read a file, and its name."""

_STARTS = re.compile(
    r"<<|pretrain_|--job\.config_file|run_train\.py|--deepspeed|accelerate\s"
    r"|--per_device_train_batch|--finetuning_type|--model_name_or_path|axolotl|llamafactory-cli|trl\s"
)
"""Start of a here-document or one of those commands; each costs a search of some hundred characters."""

_LINE = re.compile(r"[^\n]*\n|[^\n]+")

_CONTENT = f"launch.{FIELD}"

_NO_TRAINING = Problem(
    field=_CONTENT,
    code="no_training",
    message="the script starts no training that is known: it neither runs Megatron-LM or a script around Hugging "
    "Face's Trainer with its arguments, nor writes the file that torchtitan, nanotron, axolotl, LLaMA-Factory, "
    "DeepSpeed or accelerate reads",
    fix="write the file inside the script, or send it alone, with its own format",
)


_SIGN = re.compile(r"['\";&|><\n]")
"""Quotes, and characters that may end a command."""


def training_in(script: str) -> tuple[str | None, str, dict[str, str]]:
    r"""The format and text of the training that a script starts, with the files that it writes and names there.

    The format is None where the text tells it: that of tools around Hugging Face's Trainer.

    >>> training_in("srun python pretrain_gpt.py --bf16 --seq-length 8 && echo done")
    ('megatron-lm', '--bf16 --seq-length 8', {})
    >>> training_in("cd x && torchrun train.py --model_name_or_path gpt2 > log")
    (None, 'torchrun train.py --model_name_or_path gpt2', {})
    """
    extra = next(islice(_STARTS.finditer(script), MOST_COMMANDS, None), None)
    if extra is not None:
        message = f"a script holds at most {MOST_COMMANDS} here-documents and commands that may start training"
        place = Lines(script).place(extra.start())
        raise refusal(place, "too_many_commands", message, "send the part that starts training", _CONTENT)
    files, commands = _split(script)
    if around := _around_trainer(files, commands):
        return None, *around
    for name, pattern, reads_a_file in _COMMANDS:
        for found in reversed(list(pattern.finditer(commands))):
            if not reads_a_file:
                return name, _command_end(commands[found.end() :]).strip(), {}
            text = files.get(found[1].strip("'\"").rpartition("/")[2])
            if text is not None:
                return name, text, {}
    raise Refused(_NO_TRAINING)


_BEFORE_COMMAND = re.compile(r"(?<!\\)\n|[;&|]")
"""End of the command before another one."""


def _around_trainer(files: dict[str, str], commands: str) -> tuple[str, dict[str, str]] | None:
    """The last training around Hugging Face's Trainer: its file or command, and the files that the command names."""
    for found in reversed(list(_NAMED_CONFIG.finditer(commands))):
        text = files.get(found[1].strip("'\"").rpartition("/")[2])
        if text is not None:
            return text, {}
    last = next(reversed(list(_AROUND_TRAINER.finditer(commands))), None)
    if last is None:
        return None
    ends = [match.end() for match in _BEFORE_COMMAND.finditer(commands, 0, last.start())]
    command = _command_end(commands[ends[-1] if ends else 0 :]).strip()
    return command, {name: text for name, text in files.items() if name and name in command}


def _split(script: str) -> tuple[dict[str, str], str]:
    """Files that the script writes, by name, and its other lines; commands inside a here-document are among them."""
    files: dict[str, str] = {}
    commands: list[str] = []
    lines = (match[0] for match in _LINE.finditer(script))
    for line in lines:
        found = _HERE.search(line)
        name = found and _file_of(line, found)
        if not found or not name:
            if not line.lstrip().startswith("#"):
                commands.append(line)
            continue
        inside: list[str] = []
        for inner in lines:
            if inner.strip() == found["end"]:
                break
            inside.append(inner)
        files[name.strip("'\"").rpartition("/")[2]] = "".join(inside)
    return files, "".join(commands)


def _file_of(line: str, found: re.Match[str]) -> str | None:
    """The file that a here-document is written into; None for a command."""
    before = _BEFORE.search(line[max(found.start() - _BEFORE_CHARACTERS, 0) : found.start()])
    return before[1] if before else found["after"]


def _command_end(text: str) -> str:
    """A command up to its end: a line that does not continue, or a shell operator."""
    quote = ""
    for match in _SIGN.finditer(text):
        place, sign = match.start(), match[0]
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign != "\n" or text[place - 1 : place] != "\\":
            return text[:place]
    return text


NAME = "train"

NODE = "cluster.gpus_per_node"


def launcher(name: str, text: Callable[[ExportRequest, Program, Nodes], str]) -> Target:
    """A target that starts training, from the function that makes its text."""

    def write(target: Target, request: ExportRequest) -> ExportedFile:
        program = program_of(request)
        nodes = replace(nodes_of(request.question), rank=target.rank, address=target.address)
        cluster = request.question.cluster
        gaps: tuple[NotExpressed, ...] = ()
        instead = dict(program.instead)
        if nodes.gpus_each < cluster.gpus_per_node and cluster.gpus > cluster.gpus_per_node:
            message = f"{cluster.gpus} GPUs do not fill nodes of {cluster.gpus_per_node}, and every node starts as many"
            fix = f"the file asks for {nodes.count} nodes of {nodes.gpus_each}; change them, or gpus"
            gaps = (NotExpressed(field=NODE, message=message, fix=fix),)
            instead[NODE] = nodes.gpus_each
        return ExportedFile(
            content=text(request, program, nodes),
            not_expressible=(*program.not_expressible, *gaps),
            assumptions=(*program.assumptions, *target.notes),
            instead=instead,
            trains=program.target,
        )

    return target_of(name, write)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """A scheduler's job."""

    script: str | Problem
    """What it starts; or why that is unknown."""
    gpus: int
    gpus_each: int
    gpu: str | None = None
    """The scheduler's name of the GPU; None if not stated."""
    machine: str | None = None
    """The cloud's name of the machine; None if not stated."""
    time_limit_seconds: float | None = None
    """Wall time limit; None if not stated."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Parts of the question that the operator or the job's owner states."""
