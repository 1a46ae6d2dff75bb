"""Threads that answer share a few heaps of the C library."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from service.api.server import MOST_HEAPS
from tests.load import serving
from tests.replicas import Replica

CALLERS = 24
RESERVED_BYTES = 1 << 26
"""Address space that glibc reserves for each heap but the first, aligned to itself."""


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    with serving(tmp_path) as found:
        yield found


def heaps(process: int) -> int:
    """Heaps of a process: what glibc reserved for them begins with a part in use, at a multiple of its size."""
    text = Path(f"/proc/{process}/maps").read_text(encoding="ascii")
    begun = re.findall(r"^([0-9a-f]+)-[0-9a-f]+ rw-p \S+ \S+ 0\s*\n[0-9a-f]+-([0-9a-f]+) ---p", text, re.MULTILINE)
    spans = [(int(begin, 16), int(end, 16)) for begin, end in begun]
    return 1 + sum(begin % RESERVED_BYTES == 0 and end - begin == RESERVED_BYTES for begin, end in spans)


def test_many_threads_that_answer_make_no_heap_each(replica: Replica) -> None:
    with httpx.Client(base_url=f"http://{replica.address}", timeout=60) as client, ThreadPoolExecutor(CALLERS) as pool:
        answers = pool.map(lambda _: client.get("/v1/scenarios").status_code, range(4 * CALLERS))
        assert set(answers) == {200}
    threads = len(list(Path(f"/proc/{replica.process.pid}/task").iterdir()))
    assert threads > 2 * MOST_HEAPS
    assert heaps(replica.process.pid) <= MOST_HEAPS
