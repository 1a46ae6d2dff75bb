"""torchrun: the line that starts all processes of one node."""

from shlex import quote

from service.formats.program import Nodes, Program, launch_words, launcher
from service.formats.rules import ExportRequest
from service.formats.text import command_text


def _line(request: ExportRequest, program: Program, nodes: Nodes) -> str:
    words, raw = launch_words(program, nodes)
    variables = [f"{name}={quote(value)} " for name, value in program.environment.items()]
    return "".join(variables) + command_text(words, raw) + "\n"


TORCHRUN = launcher("torchrun", _line, has_files=False)
