"""Scripts read under an audit hook that refuses to start programs and to open files for writing."""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from service.errors import TraincostError
from service.features.exports.exports import import_file

STARTS = (
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.fork",
    "os.forkpty",
    "pty.spawn",
)
CHANGES = (
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "shutil.",
    "socket.connect",
    "ctypes.dlopen",
    "compile",
    "exec",
)


class Broken(BaseException):
    """What reading a text must not do."""


_watching = False


def _audited(event: str, arguments: tuple[object, ...]) -> None:
    if not _watching:
        return
    flags = arguments[2] if event == "open" and len(arguments) > 2 else 0
    writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if writes or event.startswith((*STARTS, *CHANGES)):
        raise Broken(event)


sys.addaudithook(_audited)


@contextmanager
def watching() -> Iterator[None]:
    """While it lasts, no program starts and no file is written."""
    global _watching  # noqa: PLW0603 - an audit hook stays, so it asks whether it is wanted
    _watching = True
    try:
        yield
    finally:
        _watching = False


@dataclass(slots=True)
class Watched:
    texts: int = 0
    read: int = 0
    wrong: list[tuple[str, str]] = field(default_factory=list)
    """What ended otherwise than by an answer or one of the service's errors, with the text."""
    seconds: list[tuple[int, float]] = field(default_factory=list)
    """Characters of each text, and what reading it took of the processor."""


def watched(texts: Iterable[str]) -> Watched:
    """Read each text as a script."""
    found = Watched()
    for text in texts:
        found.texts += 1
        begin = time.process_time()
        try:
            with watching():
                import_file("script", text)
            found.read += 1
        except TraincostError:
            pass
        except (Exception, Broken) as error:
            found.wrong.append((repr(error), text))
        found.seconds.append((len(text), time.process_time() - begin))
    return found
