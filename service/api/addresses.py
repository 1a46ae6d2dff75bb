"""Where is the service, as its caller sees it? Files that are fetched from it name that address."""

import re

from fastapi import Request

from service.api.problems import WrongParameter
from service.errors import Problem

DOCUMENTED = "localhost:8000"
"""Host and port in the files, for which those of the service are put."""
HOST = re.compile(r"[A-Za-z0-9.\-]+(:\d+)?|\[[0-9A-Fa-f:]+\](:\d+)?")


def address_of(request: Request) -> str:
    """The address under which a request reached the service.

    Args:
        request: the request

    Returns:
        e.g. `http://localhost:8000`, without a slash behind it

    Raises:
        WrongParameter: the Host header is none, so it must not be written anywhere
    """
    if not HOST.fullmatch(request.url.netloc):
        message = "the address at which this was asked for is no host name"
        raise WrongParameter(Problem(field="", code="not_a_host", message=message, fix="ask by name or IP address"))
    return str(request.base_url).rstrip("/")


def with_address(text: str, request: Request) -> str:
    """A file that names the service where its caller reached it.

    Args:
        text: the file, which names the documented address
        request: the request

    Returns:
        the same with the address of the service

    Raises:
        WrongParameter: the Host header is none
    """
    address = address_of(request)
    return text.replace(f"http://{DOCUMENTED}", address).replace(DOCUMENTED, address.partition("://")[2])
