"""Program that a launcher starts: its words, files and environment, and what it leaves out.

The default is that of the question's training software, with the file that the software's own target writes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from shlex import quote, split

from service.answers.exports import NotExpressed
from service.errors import Problem, Refused
from service.estimator.question import Question, StackName
from service.estimator.software.stacks import software_of
from service.formats.frameworks.accelerate import ACCELERATE
from service.formats.frameworks.deepspeed import DEEPSPEED
from service.formats.frameworks.megatron import MEGATRON_LM, environment_of
from service.formats.frameworks.nanotron import NANOTRON
from service.formats.frameworks.torchtitan import TORCHTITAN
from service.formats.rules import ExportRequest, Target
from service.formats.text import command_text

PORT = 29500
"""Port of the rendezvous."""

SCRIPT = "train.py"
"""The caller's own script, for software that is a library."""

LONGEST_COMMAND = 4096
"""Characters of a caller's own command."""

_END = "TRAINCOST_END"
"""End mark of a file inside a script; no written file contains it."""

_ALLOCATOR = "recipe.stack.expandable_segments"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The program of each rank."""

    words: tuple[str, ...]
    """The program and its arguments, as torchrun or accelerate launch take them."""
    files: Mapping[str, str]
    """Files that it reads, by name."""
    environment: Mapping[str, str]
    """Variables that it needs."""
    config: str | None
    """The file for accelerate launch; None if torchrun starts it."""
    target: str | None
    """The target that wrote it; None for a caller's own command."""
    not_expressible: tuple[NotExpressed, ...]
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendezvous:
    """Rank of a node and address of the first one, as shell words."""

    rank: str
    address: str


@dataclass(frozen=True, slots=True)
class Nodes:
    """Processes of a job."""

    count: int
    gpus_each: int
    """GPUs of each node, and its processes."""


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
            NotExpressed(field=part, message=message, fix="say it in your command")
            for part in ("recipe", "layout", "model")
        ),
        assumptions=(),
    )


def launch_words(program: Program, nodes: Nodes, rendezvous: Rendezvous | None) -> tuple[list[str], list[str]]:
    """The command that starts all ranks of one node, and its words that the shell expands."""
    rank, address = (rendezvous.rank, rendezvous.address) if rendezvous else ("0", "")
    if program.config is not None:
        words = ["accelerate", "launch", "--config_file", program.config]
        if rendezvous:
            words += ["--machine_rank", rank, "--main_process_ip", address, "--main_process_port", str(PORT)]
    elif rendezvous:
        words = ["torchrun", "--nnodes", str(nodes.count), "--nproc-per-node", str(nodes.gpus_each)]
        words += ["--node-rank", rank, "--master-addr", address, "--master-port", str(PORT)]
    else:
        words = ["torchrun", "--standalone", "--nnodes", "1", "--nproc-per-node", str(nodes.gpus_each)]
    return [*words, *program.words], [rank, address]


def script_of(program: Program, nodes: Nodes, rendezvous: Rendezvous, *, before: str = "") -> str:
    """Shell commands for one node: write the files, set the environment, launch all ranks."""
    words, raw = launch_words(program, nodes, rendezvous if nodes.count > 1 else None)
    files = [f"cat > {quote(name)} <<'{_END}'\n{text}{_END}\n" for name, text in program.files.items()]
    variables = [f"export {name}={quote(value)}\n" for name, value in program.environment.items()]
    return "".join([before, *files, *variables, command_text(words, raw), "\n"])
