"""Where is the service, as its caller sees it?"""

from fastapi import Request


def address_of(request: Request) -> str:
    """The address under which a request reached the service.

    Args:
        request: the request

    Returns:
        e.g. `http://localhost:8000`, without a slash behind it
    """
    return str(request.base_url).rstrip("/")
