"""Requests that two readers could read in two ways, each with a second request hidden behind it.

None may be answered with anything but one refusal; the last few are sound, and are answered once.
"""

import re
import socket
from collections.abc import Iterator, Mapping

HIDDEN = b"GET /healthz?hidden HTTP/1.1\r\nHost: localhost\r\n\r\n"
"""What somebody between the two readers would have taken for content."""

JSON = b"Content-Type: application/json\r\n"


def post(*lines: bytes, content: bytes = b"", version: bytes = b"1.1") -> bytes:
    """A POST with such headers."""
    head = b"POST /v1/memory HTTP/%b\r\nHost: localhost\r\n%b%b\r\n" % (
        version,
        JSON,
        b"".join(line + b"\r\n" for line in lines),
    )
    return head + content


def get(*lines: bytes, target: bytes = b"/healthz", version: bytes = b"HTTP/1.1") -> bytes:
    """A GET with such headers."""
    return b"GET %b %b\r\n%b\r\n" % (target, version, b"".join(line + b"\r\n" for line in lines))


STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) [A-Z]")

CHUNKED = b"Transfer-Encoding: chunked"
ENDED = b"0\r\n\r\n"

AMBIGUOUS: Mapping[str, bytes] = {
    "length and chunks": post(b"Content-Length: 5", CHUNKED, content=ENDED),
    "chunks and length": post(CHUNKED, b"Content-Length: 5", content=ENDED),
    "two lengths": post(b"Content-Length: 2", b"Content-Length: 44", content=b"{}"),
    "two equal lengths": post(b"Content-Length: 2", b"Content-Length: 2", content=b"{}"),
    "list of lengths": post(b"Content-Length: 2, 2", content=b"{}"),
    "length with a sign": post(b"Content-Length: +2", content=b"{}"),
    "negative length": post(b"Content-Length: -1"),
    "hexadecimal length": post(b"Content-Length: 0x2", content=b"{}"),
    "length in two words": post(b"Content-Length: 2 0", content=b"{}"),
    "length of no digit": post(b"Content-Length: "),
    "length beyond 64 bits": post(b"Content-Length: 18446744073709551618", content=b"{}"),
    "unknown coding": post(b"Transfer-Encoding: xchunked", content=ENDED),
    "coding behind chunks": post(b"Transfer-Encoding: chunked, identity", content=ENDED),
    "coding before chunks": post(b"Transfer-Encoding: gzip, chunked", content=ENDED),
    "identity": post(b"Transfer-Encoding: identity", b"Content-Length: 2", content=b"{}"),
    "two codings": post(CHUNKED, b"Transfer-Encoding: x", content=ENDED),
    "chunks twice": post(CHUNKED, CHUNKED, content=ENDED),
    "vertical tab": post(b"Transfer-Encoding: \x0bchunked", content=ENDED),
    "space before the colon": post(b"Transfer-Encoding : chunked", content=ENDED),
    "chunks in HTTP/1.0": post(CHUNKED, content=ENDED, version=b"1.0"),
    "folded header": post(b"X-A: b\r\n c", b"Content-Length: 2", content=b"{}"),
    "folded coding": post(b"Transfer-Encoding:\r\n chunked", content=ENDED),
    "folded first header": b"GET /healthz HTTP/1.1\r\n X-A: b\r\nHost: a\r\n\r\n",
    "bare line feeds": b"GET /healthz HTTP/1.1\nHost: a\n\n",
    "one bare line feed": get(b"Host: a\nX-A: b"),
    "bare carriage return": get(b"Host: a", b"X-A: b\rX-B: c"),
    "NUL in a header": get(b"Host: a", b"X-A: b\0c"),
    "space in a name": get(b"Host: a", b"X A: b"),
    "line without a colon": get(b"Host: a", b"X-A"),
    "no name": get(b"Host: a", b": b"),
    "no host": get(),
    "two hosts": get(b"Host: a", b"Host: b"),
    "two equal hosts": get(b"Host: a", b"Host: a"),
    "empty host": get(b"Host: "),
    "host with a path": get(b"Host: a/b"),
    "host with a user": get(b"Host: a@b"),
    "two words as host": get(b"Host: a b"),
    "other host in the target": get(b"Host: a", target=b"http://b/healthz"),
    "target of a tunnel": b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
    "spaces in the target": get(b"Host: a", target=b"/healthz HTTP/1.1 x"),
    "unknown version": get(b"Host: a", version=b"HTTP/1.2"),
    "no version": get(b"Host: a", version=b""),
    "another protocol": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "unknown method": b"get /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
    "size with 0x": post(CHUNKED, content=b"0x2\r\n{}\r\n" + ENDED),
    "negative size": post(CHUNKED, content=b"-2\r\n{}\r\n" + ENDED),
    "size with a sign": post(CHUNKED, content=b"+2\r\n{}\r\n" + ENDED),
    "size of no digit": post(CHUNKED, content=b"\r\n{}\r\n" + ENDED),
    "size beyond 64 bits": post(CHUNKED, content=b"10000000000000002\r\n{}\r\n" + ENDED),
    "chunk longer than its size": post(CHUNKED, content=b"1\r\n{}\r\n" + ENDED),
    "chunk shorter than its size": post(CHUNKED, content=b"4\r\n{}\r\n" + ENDED),
    "chunks between bare line feeds": post(CHUNKED, content=b"2\n{}\n0\n\n"),
    "bare line feed in a chunk's extension": post(CHUNKED, content=b"2;x\n{}\r\n" + ENDED),
}
"""By what is wrong, a request that somebody else could read otherwise."""

SOUND: Mapping[str, bytes] = {
    "asks for another protocol": get(b"Host: a", b"Connection: Upgrade", b"Upgrade: h2c"),
    "asks for the end": get(b"Host: a", b"Connection: close"),
    "is HTTP/1.0": get(b"Host: a", version=b"HTTP/1.0"),
}
"""By what it does, a request that is answered, behind which the connection ends."""


def replies(address: tuple[str, int], sent: bytes, seconds: float = 15.0) -> tuple[list[int], bytes]:
    """Status of each answer on one connection, and everything that came; TimeoutError where it is not ended."""
    came = b"".join(_received(address, sent, seconds))
    return [int(status) for status in STATUS.findall(came)], came


def _received(address: tuple[str, int], sent: bytes, seconds: float) -> Iterator[bytes]:
    with socket.create_connection(address, timeout=seconds) as connection:
        connection.sendall(sent)
        try:
            while piece := connection.recv(65536):
                yield piece
        except ConnectionResetError:
            return
