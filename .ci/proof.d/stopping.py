"""Requests lost when a process under load is told to stop, three times: none; when it says so; how long it takes."""

import sys
import tempfile
from pathlib import Path

from tests.stopping import stopped_while_asked

TIMES = 3
CALLERS, SLOW_CALLERS = 50, 2
SECONDS = 4.0
DRAIN_SECONDS = 6
"""Twice what /readyz may take to answer under this load, where two cores are shared with all callers."""
MOST_EXIT_SECONDS = 10.0


def main() -> None:
    wrong = 0
    for _ in range(TIMES):
        with tempfile.TemporaryDirectory() as name:
            found = stopped_while_asked(
                Path(name), callers=CALLERS, slow_callers=SLOW_CALLERS, seconds=SECONDS, drain=DRAIN_SECONDS
            )
        said = "unheard of in 2 s" if found.not_ready_seconds is None else f"after {found.not_ready_seconds:.2f} s"
        print(
            f"{CALLERS} + {SLOW_CALLERS} connections, {dict(found.answers)} answers, {found.answered_after} of them "
            f"begun after SIGTERM; {len(found.failed)} failed, {found.cut} cut; not ready {said}; "
            f"ended after {found.exit_seconds:.1f} s"
        )
        for failure in found.failed[:3]:
            print(f"  {failure}")
        is_late = found.exit_seconds > MOST_EXIT_SECONDS
        wrong += bool(found.failed) or bool(found.cut) or set(found.answers) != {200} or is_late
    if wrong:
        sys.exit("a process that stops loses requests, or does not end in time")


if __name__ == "__main__":
    main()
