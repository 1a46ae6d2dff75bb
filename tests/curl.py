"""The request of a curl command in the documentation, sent without curl."""

import shlex
from itertools import pairwise
from pathlib import Path

import httpx

from tests.live import DOCUMENTED


def asked(curl: str, address: str, folder: Path = Path()) -> httpx.Response:
    """The answer of a live service to a curl command; files that it names are in the folder."""
    program, *words = shlex.split(curl)
    assert program == "curl"
    (url,) = [word for word in words if word.startswith("http://")]
    assert DOCUMENTED in url
    given = {option: value for option, value in pairwise(words) if option.startswith("-")}
    named = [value.partition(": ") for option, value in pairwise(words) if option == "-H"]
    headers = [(name, value) for name, _, value in named]
    content = given.get("-d", "").encode()
    if "--data-binary" in given:
        content = (folder / given["--data-binary"].removeprefix("@")).read_bytes()
    method = given.get("-X", "POST" if content else "GET")
    url = url.replace(DOCUMENTED, address)
    return httpx.request(method, url, headers=headers, content=content or None, timeout=30)
