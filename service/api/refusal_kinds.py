"""For what is a connection refused before there is a request? Each kind is counted on its own."""

from typing import Literal

RefusalKind = Literal["connections", "grammar", "head", "host", "target", "framing", "late"]
"""One connection too many, what the parser refuses, a head too long, its Host, another host in its target, the length
of its content, a head that is late."""
