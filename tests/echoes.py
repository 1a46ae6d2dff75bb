"""What an answer holds of its request: errors may repeat it in quotes, shortened and escaped, and nowhere else."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx

from service.errors import LONGEST_ECHO
from service.validation.json_text import PLAIN_NAME

ECHO = re.compile(r'"(?:[^"\\]|\\.)*"')


def beyond_echo(answer: httpx.Response) -> str:
    """The text of an answer and its headers, without quoted texts and plain names of fields."""
    if answer.headers.get("content-type") != "application/problem+json":
        return unquoted(answer.text) + str(answer.headers)
    return unquoted_of(answer.json()) + str(answer.headers)


def unquoted_of(document: Any) -> str:
    """The texts of a problem document, without what they quote and without plain names of fields."""
    return " ".join(map(unquoted, _texts(document)))


def unquoted(text: str) -> str:
    """A text without what it quotes, which is JSON of a few harmless characters."""
    for echo in ECHO.findall(text):
        value = json.loads(echo)
        assert len(value) <= LONGEST_ECHO + len("..."), echo
        assert echo.isprintable(), echo
        assert not set("<>&;") & {*echo}, echo
    return ECHO.sub("", text)


def _texts(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, name)
    elif name in {"pointer", "parameter"}:
        yield " ".join(step for step in str(value).split("/") if not PLAIN_NAME.fullmatch(step))
    else:
        yield str(value)
