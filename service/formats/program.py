"""What does a launcher start: which program, which files does it read, what does it leave unsaid?

By default it is that of the question's training software, written as that software's own target writes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from shlex import quote, split

from service.errors import Problem, Refused
from service.estimator.names import StackName
from service.estimator.question import Question
from service.estimator.software.stacks import software_of
from service.formats.frameworks.accelerate import ACCELERATE
from service.formats.frameworks.deepspeed import DEEPSPEED
from service.formats.frameworks.megatron import MEGATRON_LM, environment_of
from service.formats.frameworks.nanotron import NANOTRON
from service.formats.frameworks.torchtitan import TORCHTITAN
from service.formats.rules import Job, Target, Unsaid
from service.formats.text import command_text

PORT = 29500
"""Where ranks meet, unless somebody else listens there."""

SCRIPT = "train.py"
"""The caller's own script, for software that is a library."""

LONGEST_COMMAND = 4096
"""Characters of a caller's own command."""

_END = "TRAINCOST_END"
"""Ends a file inside a script; no file that is written holds it."""

_ALLOCATOR = "recipe.stack.expandable_segments"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What each rank runs."""

    words: tuple[str, ...]
    """The program and its arguments, as torchrun or accelerate launch take them."""
    files: Mapping[str, str]
    """Files that it reads, by name."""
    environment: Mapping[str, str]
    """Variables that it needs."""
    config: str | None
    """The file for accelerate launch; None where torchrun starts it."""
    target: str | None
    """The target that wrote it; None for a caller's own command."""
    not_expressible: tuple[Unsaid, ...]
    """What the program is not told."""
    assumptions: tuple[str, ...]
    """What whoever starts it has to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """How a node learns which one it is and where the others are, in words of the shell."""

    rank: str
    """Number of the node."""
    address: str
    """Name or address of the first one."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """How many processes, and where."""

    count: int
    """Nodes."""
    gpus_each: int
    """GPUs of each, and processes."""


def nodes_of(question: Question) -> Nodes:
    """Nodes that are alike, as every launcher wants them."""
    cluster = question.cluster
    each = gcd(cluster.gpus, cluster.gpus_per_node)
    return Nodes(cluster.gpus // each, each)


_STARTED: Mapping[StackName, tuple[Target, tuple[str, ...]]] = {
    "megatron-core": (MEGATRON_LM, ("pretrain_gpt.py",)),
    "torchtitan": (TORCHTITAN, ("-m", "torchtitan.train", "--job.config_file")),
    "nanotron": (NANOTRON, ("run_train.py", "--config-file")),
    "deepspeed": (DEEPSPEED, (SCRIPT, "--deepspeed_config")),
    "fsdp1": (ACCELERATE, (SCRIPT,)),
    "transformers": (ACCELERATE, (SCRIPT,)),
}
"""The target that says how each software trains, and how the program begins that reads what it writes."""


def program_of(job: Job) -> Program:
    """The program that a launcher's file starts."""
    if job.command is not None:
        return _own(job.command)
    software = software_of(job.question.recipe)
    target, begins = _STARTED[software.name]
    name, version = next(iter(target.versions.items()))
    written = target.write(Job(question=job.question, version=name))
    told = []
    environment = environment_of(job.question) if target is MEGATRON_LM else {}
    if software.expandable_segments:
        environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    unsaid = tuple(one for one in written.not_expressible if one.field != _ALLOCATOR)
    files = {version.file_name: written.content}
    words = (*begins, version.file_name)
    if target is MEGATRON_LM:
        files, words = {}, (*begins, *split(written.content.replace("\\\n", "")))
    else:
        told.append(f"{version.file_name} is what POST /v1/exports/{target.name} gives in version {name}")
    if SCRIPT in begins:
        told.append(f"{SCRIPT} stands for your own training script")
    config = version.file_name if target is ACCELERATE else None
    return Program(
        words=begins if config else words,
        files=files,
        environment=environment,
        config=config,
        target=target.name,
        not_expressible=unsaid,
        assumptions=(*written.assumptions, *told),
    )


def _own(command: str) -> Program:
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
            Unsaid(part, message, "say it in your command") for part in ("recipe", "layout", "model")
        ),
        assumptions=(),
    )


def launch_words(program: Program, nodes: Nodes, meeting: Meeting | None) -> tuple[list[str], list[str]]:
    """The command that starts all ranks of one node."""
    rank, address = (meeting.rank, meeting.address) if meeting else ("0", "")
    if program.config is not None:
        words = ["accelerate", "launch", "--config_file", program.config]
        if meeting:
            words += ["--machine_rank", rank, "--main_process_ip", address, "--main_process_port", str(PORT)]
    elif meeting:
        words = ["torchrun", "--nnodes", str(nodes.count), "--nproc-per-node", str(nodes.gpus_each)]
        words += ["--node-rank", rank, "--master-addr", address, "--master-port", str(PORT)]
    else:
        words = ["torchrun", "--standalone", "--nnodes", "1", "--nproc-per-node", str(nodes.gpus_each)]
    return [*words, *program.words], [rank, address]


def script_of(program: Program, nodes: Nodes, meeting: Meeting, *, before: str = "") -> str:
    """The shell commands that start all ranks of one node: its files, its environment, its launch."""
    words, raw = launch_words(program, nodes, meeting if nodes.count > 1 else None)
    files = [f"cat > {quote(name)} <<'{_END}'\n{text}{_END}\n" for name, text in program.files.items()]
    variables = [f"export {name}={quote(value)}\n" for name, value in program.environment.items()]
    return "".join([before, *files, *variables, command_text(words, raw), "\n"])
