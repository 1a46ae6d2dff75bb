"""Where does the accounting come from? A file, standard input, or sacct itself, called here."""

import os
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path

from service.errors import TraincostError
from service.workflows.body_file import STANDARD_INPUT
from service.workflows.reconciliation.parsable import COMMAND

A_WEEK_AGO = "now-7days"
"""sacct's own default is today, in which few runs of training end."""

LONGEST_SECONDS = 600.0
"""Longest wait for sacct. Source: a choice; a slurmdbd of millions of jobs takes minutes."""


class NoAccounting(TraincostError):
    """The accounting cannot be read: no such file, no sacct, or one that fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which jobs sacct is asked for."""

    since: str | None = None
    """Those since then."""
    until: str | None = None
    """Those until then."""
    cluster: str | None = None
    """Those of these clusters."""


def sacct_output(file: str | None, wanted: Wanted) -> str:
    """What sacct printed, or prints now.

    Args:
        file: where it was kept, - for standard input; None to call sacct
        wanted: which jobs it is asked for

    Returns:
        its text

    Raises:
        NoAccounting: it cannot be read
    """
    if file is None:
        return _called(wanted)
    asked = [f"--{field.name}" for field in fields(wanted) if getattr(wanted, field.name) is not None]
    if asked:
        raise NoAccounting(f"{' and '.join(asked)} choose what sacct is asked for, and a file holds what it answered")
    try:
        content = sys.stdin.buffer.read() if file == STANDARD_INPUT else Path(file).read_bytes()
    except (OSError, ValueError) as error:
        cause = (error.strerror if isinstance(error, OSError) else None) or "its name is none of a file"
        raise NoAccounting(f"the file cannot be read: {cause}") from None
    return _decoded(content)


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise NoAccounting("the file is no text in UTF-8; save what sacct prints as it is") from None


def _called(wanted: Wanted) -> str:
    command = [*COMMAND.split(), f"--starttime={wanted.since or A_WEEK_AGO}"]
    command += [] if wanted.until is None else [f"--endtime={wanted.until}"]
    command += [] if wanted.cluster is None else [f"--clusters={wanted.cluster}"]
    environment = {**os.environ, "LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}
    try:
        done = subprocess.run(  # noqa: S603 - a list of words, none of which a shell reads
            command, env=environment, capture_output=True, check=False, timeout=LONGEST_SECONDS
        )
    except OSError:
        message = "sacct is not found; run this where Slurm's commands are, or give what it printed as a file"
        raise NoAccounting(message) from None
    except subprocess.TimeoutExpired:
        raise NoAccounting(
            f"sacct did not answer in {LONGEST_SECONDS:.0f} s; ask for a shorter time: --since"
        ) from None
    if done.returncode:
        said = " ".join(done.stderr.decode("utf-8", "replace").split())
        raise NoAccounting(f"sacct fails: {said}")
    return _decoded(done.stdout)
