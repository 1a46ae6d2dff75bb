"""Shell texts, made from a grammar and of public scripts: nothing of them runs, no answer is 5xx, time is linear."""

import argparse
import os
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import httpx

from service.formats.text import LONGEST_FILE_BYTES
from tests.formats.shell.texts import PUBLIC, texts
from tests.formats.shell.watched import Watched, watched
from tests.live import serving

TEXTS, OVER_HTTP, MINUTES = 200_000, 10_000, 60.0
BATCH = 1000

UNITS = (
    "(", "$(", "${", "((", "))", "A=(", "<<A\n", "<<A ", "<<<", '"$(', "`", "'", '"', "if ", "case x in ", "[[ ", "{ ",
    "f() {", "a|", "&& ", ";;", "${a:-", "$((1+", "<(", "for i in ", "while x; do ", "a=b ", "A=$A$A\n", "A+=(x)\n",
    "$a ", "\\\n", "#\n", "x && A=1\n",
    "if x; then A=$A; fi\n", "cat <<E > f\nx\nE\n", "f() { f; }\nf\n", "eval 'x'\n",
    "for i in 1 2 3; do ", "bash -c 'x'\n", "--a b ", "x.py --a $B ", "${A%%*x*y}", "[ -z $A ] || ",
    "\u2028", "\r", "é ",
)  # fmt: skip
"""Texts that are repeated up to the longest that is read."""

MOST_GROWTH = 3.0
"""Most times the time for twice the text. Source: a choice; 2 is linear, and quadratic would be 4."""
LEAST_SECONDS = 0.05
"""Shortest time that is compared. Source: a choice; what is below is noise."""


def growth(unit: str) -> tuple[float, float]:
    """Seconds for the longest text of a unit, and their ratio to those for half of it; the better of three each."""
    seconds = []
    for length in (LONGEST_FILE_BYTES // 2, LONGEST_FILE_BYTES):
        size = length // len(unit.encode())
        seconds.append(min(watched([unit * size]).seconds[0][1] for _ in range(3)))
    return seconds[1], seconds[1] / seconds[0]


def answered(address: str, count: int) -> tuple[dict[int, int], list[str]]:
    """Statuses of checks over HTTP, and texts that an answer of 5xx came back for."""
    statuses: dict[int, int] = {}
    wrong: list[str] = []
    with httpx.Client(base_url=f"http://{address}", timeout=60) as client:
        for text in islice(texts(2), count):
            job = {"script": text, "tres_per_node": "gres/gpu:h100:8"}
            status = client.post("/v1/adapters/slurm/check", json=job).status_code
            statuses[status] = statuses.get(status, 0) + 1
            if status >= 500:
                wrong.append(text)
    return statuses, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=TEXTS)
    parser.add_argument("--over-http", type=int, default=OVER_HTTP)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    given = parser.parse_args()
    os.environ["TRAINCOST_LOG_LEVEL"] = "warning"
    total, made = Watched(), texts(1)
    end = time.monotonic() + 60 * given.minutes
    while total.texts < given.texts and time.monotonic() < end and not total.wrong:
        found = watched(islice(made, min(BATCH, given.texts - total.texts)))
        total.texts, total.read = total.texts + found.texts, total.read + found.read
        total.wrong, total.seconds = found.wrong, sorted([*total.seconds, *found.seconds], key=lambda one: -one[1])[:1]
    characters, longest = total.seconds[0]
    print(
        f"{total.texts} texts of {len(PUBLIC)} public scripts and of a grammar: {total.read} read, the others refused; "
        f"{len(total.wrong)} ended otherwise, no program started and no file written; longest {longest:.3f} s for "
        f"{characters} characters",
        flush=True,
    )
    grown = {unit: growth(unit) for unit in UNITS}
    slowest = max(grown, key=lambda unit: grown[unit][0])
    most = max(ratio for seconds, ratio in grown.values() if seconds > LEAST_SECONDS)
    beyond = [unit for unit, (seconds, ratio) in grown.items() if seconds > LEAST_SECONDS and ratio > MOST_GROWTH]
    print(
        f"{len(grown)} texts repeated to {LONGEST_FILE_BYTES >> 10} KiB: longest {grown[slowest][0]:.2f} s for "
        f"{slowest!r}; twice the text takes at most {most:.1f} times the time",
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="traincost-shells-") as name, serving(Path(name)) as address:
        statuses, wrong = answered(address, given.over_http)
    print(f"{given.over_http} over HTTP: {', '.join(f'{count} of {code}' for code, count in sorted(statuses.items()))}")
    if total.wrong or wrong or beyond:
        sys.exit(f"not sound: {total.wrong[:1]} {wrong[:1]} {beyond}")


if __name__ == "__main__":
    main()
