"""torchrun: the line that starts all processes of one node.

Source: torch 2.13.0 torch/distributed/run.py.
"""

from shlex import quote

from service.formats.program import Nodes, Program, Rendezvous, launch_words, writer
from service.formats.rules import ExportRequest, Target, Version
from service.formats.text import command_text

RENDEZVOUS = Rendezvous(rank='"$NODE_RANK"', address='"$MASTER_ADDR"')


def _line(request: ExportRequest, program: Program, nodes: Nodes) -> str:
    words, raw = launch_words(program, nodes, RENDEZVOUS if nodes.count > 1 else None)
    variables = [f"{name}={quote(value)} " for name, value in program.environment.items()]
    return "".join(variables) + command_text(words, raw) + "\n"


TORCHRUN = Target(
    name="torchrun",
    tool="torchrun",
    kind="launcher",
    versions={
        "2": Version(covers="torch 2: one line for each node", file_name="launch.sh", media_type="text/x-shellscript")
    },
    write=writer(
        _line,
        "with several nodes, NODE_RANK is the number of this one and MASTER_ADDR the name of the first",
        "software that accelerate starts is started by accelerate launch",
    ),
    source="torch 2.13.0 torch/distributed/run.py",
)
