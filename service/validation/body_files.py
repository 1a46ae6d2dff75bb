"""JSON bodies that a command reads from a file or from standard input."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from service.errors import TraincostError

STANDARD_INPUT = "-"


class UnreadableBody(TraincostError):
    """An unreadable file, or one without a JSON object."""


def body_in(name: str) -> Mapping[str, Any]:
    """The JSON object in a file."""
    try:
        body = json.loads(_bytes_in(name))
    except (ValueError, RecursionError):
        raise UnreadableBody(f"{_label(name)} is not JSON; give what POST takes, in UTF-8") from None
    if not isinstance(body, dict):
        raise UnreadableBody(f"{_label(name)} is no JSON object; give what POST takes")
    return body


def text_in(name: str) -> str:
    """The text in a file, such as the log of a job."""
    return _bytes_in(name).decode("utf-8", "replace")


def _label(name: str) -> str:
    return "standard input" if name == STANDARD_INPUT else name


def _bytes_in(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == STANDARD_INPUT else Path(name).read_bytes()
    except (OSError, ValueError) as error:
        cause = (error.strerror if isinstance(error, OSError) else None) or "its name is none of a file"
        raise UnreadableBody(f"{_label(name)} cannot be read: {cause}") from None
