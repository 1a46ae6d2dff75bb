"""Training programs: the command that a launcher's file starts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import gcd
from shlex import quote, split
from typing import Any

from service.answers.exports import NotExpressed
from service.errors import Problem, Refused
from service.estimator.question import Question, StackName
from service.estimator.software.stacks import STACKS, software_of
from service.formats.frameworks.accelerate import ACCELERATE
from service.formats.frameworks.deepspeed import DEEPSPEED
from service.formats.frameworks.megatron_core.megatron import MEGATRON_LM, environment_of
from service.formats.frameworks.nanotron import NANOTRON
from service.formats.frameworks.torchtitan import TORCHTITAN
from service.formats.rules import ExportedFile, ExportRequest, Target, target_of
from service.formats.text import command_text
from service.formats.training import Job

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
    if software.expandable_segments or STACKS[software.name].grows_segments:
        environment["PYTORCH_CUDA_ALLOC_CONF"] = f"expandable_segments:{bool(software.expandable_segments)}"
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


def _beside(program: Program) -> tuple[NotExpressed, ...]:
    """Gaps of a launcher that names the program's file, and does not write it."""
    return tuple(
        NotExpressed(
            field=part,
            message=f"it is in {name}, which the file names",
            fix=f"write that by POST /v1/exports/{program.target}",
            left_open=True,
        )
        for name in program.files
        for part in ("recipe", "layout", "model")
    )


NAME = "train"

NODE = "cluster.gpus_per_node"


def launcher(name: str, text: Callable[[ExportRequest, Program, Nodes], str], *, has_files: bool = True) -> Target:
    """A target that starts training, from the function that makes its text, which has the program's files or not."""

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
        if not has_files:
            gaps += _beside(program)
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
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that it may read, by name."""
    job: Job = field(default_factory=Job)
    """What the scheduler gives to the script's process."""
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
