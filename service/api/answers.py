"""How does an answer leave? As the one JSON text that it has."""

from typing import Any

from fastapi.responses import Response

from service.workflows.wire import to_bytes

JSON = "application/json"


def json_answer(value: Any) -> Response:
    """The response that carries an answer.

    Args:
        value: a dataclass of the workflows, or anything else with a wire form

    Returns:
        the response, status 200

    Raises:
        NotFinite: a number is NaN or infinite
    """
    return Response(to_bytes(value), media_type=JSON)
