"""What may a log say of a request? Everything but what lets its reader in."""

import re

from service.api.credentials import IN_QUERY
from service.logs import MASK

_NAMES = "|".join("".join(f"(?:{letter}|%{ord(letter):x})" for letter in name) for name in IN_QUERY)

SECRETS = re.compile(
    rf"(?<=/v1/adapters/kubernetes/admission/)[^?]+|(?<=[?&])((?:{_NAMES})=)[^&]*|\btck_[\w%.~-]+", re.IGNORECASE
)
"""The token of the webhook's address, credentials in a query however their names are spelled, and any key at all."""


def masked(text: str) -> str:
    """A text without credentials.

    Args:
        text: a path with its query

    Returns:
        the text, *** in their places

    >>> masked("/v1/cell/fits?key=tck_0.1&tp=2")
    '/v1/cell/fits?key=***&tp=2'
    """
    return SECRETS.sub(lambda found: (found[1] or "") + MASK, text)
