"""How does a text stand in XML 1.0? Escaped, and without the characters that it forbids."""

import re
from html import escape

FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Source: XML 1.0, fifth edition, production 2."""


def xml_text(text: str) -> str:
    r"""A text as the content of an element or an attribute.

    >>> xml_text('a < "b"\ufffe\0')
    'a &lt; &quot;b&quot;'

    Args:
        text: any text

    Returns:
        what a parser reads back, but for the characters that it would refuse
    """
    return escape(FORBIDDEN.sub("", text))
