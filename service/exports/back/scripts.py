"""Which training does a shell script start? The file that says how, or the arguments that do, found in its text.

A script is not run: files are those that it writes from here-documents, the command is the last one that names a
program which is known.
"""

import re

from service.errors import Problem, Refused
from service.exports.back.entries import FIELD

SCRIPT = "script"
"""Name of scripts among the kinds of files."""

_NAMED = re.compile(
    r"(?:cat\s{0,9}>\s{0,9}(?P<before>\S{1,255}) {0,9})?"
    r"<<-?\s{0,9}(?P<quote>['\"]?)(?P<end>\w{1,80})(?P=quote)(?:\s{0,9}>\s{0,9}(?P<after>\S{1,255}))?"
)
"""A here-document that is written into a file, or into no file."""

_PROGRAMS = (
    ("megatron-lm", re.compile(r"pretrain_\w{1,40}\.py(?=\s)"), False),
    ("torchtitan", re.compile(r"--job\.config_file[=\s]{1,9}(\S{1,255})"), True),
    ("nanotron", re.compile(r"run_train\.py\s.{0,400}?--config-file[=\s\\]{1,9}(\S{1,255})", re.DOTALL), True),
    ("deepspeed", re.compile(r"--deepspeed(?:_config)?[=\s]{1,9}(\S{1,255})"), True),
    ("accelerate", re.compile(r"accelerate\s+launch\s.{0,400}?--config_file[=\s\\]{1,9}(\S{1,255})", re.DOTALL), True),
)
"""How a command that trains is known, and whether it names a file that says how; bounded, for scripts are hostile."""

_NO_TRAINING = Problem(
    field=f"launch.{FIELD}",
    code="no_training",
    message="the script starts no training that is known: it neither runs Megatron-LM with its arguments, nor writes "
    "the file that torchtitan, nanotron, DeepSpeed or accelerate reads",
    fix="write the file inside the script, or send it alone, with its own format",
)


def found_in(script: str) -> tuple[str, str]:
    r"""The training that a script starts.

    Args:
        script: a shell script, or one command

    Returns:
        kind of file, and its text

    Raises:
        Refused: no training that is known is started

    >>> found_in("srun python pretrain_gpt.py --bf16 --seq-length 8 && echo done")
    ('megatron-lm', '--bf16 --seq-length 8')
    """
    files, commands = _taken_apart(script)
    for name, pattern, reads_a_file in _PROGRAMS:
        for found in reversed(list(pattern.finditer(commands))):
            if not reads_a_file:
                return name, _to_the_end(commands[found.end() :]).strip()
            text = files.get(found[1].strip("'\"").rpartition("/")[2])
            if text is not None:
                return name, text
    raise Refused(_NO_TRAINING)


def _taken_apart(script: str) -> tuple[dict[str, str], str]:
    """Files that the script writes, by name, and its other lines; commands inside a here-document are among them."""
    files: dict[str, str] = {}
    commands: list[str] = []
    lines = iter(script.splitlines(keepends=True))
    for line in lines:
        found = _NAMED.search(line)
        name = found and (found["before"] or found["after"])
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


def _to_the_end(text: str) -> str:
    """A command up to what ends it: the end of a line that does not go on, or a sign that only the shell reads."""
    quote = ""
    for place, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in ";&|><" or (letter == "\n" and text[place - 1 : place] != "\\"):
            return text[:place]
    return text
