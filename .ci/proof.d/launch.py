"""A launch check of SmolLM2 135M at reduced depth through `serve` and its worker, every probe: time and error."""

import sys
import tempfile
import time
from pathlib import Path

from service.cli.reports import launch_check_report
from service.client import Client
from tests.live import serving

BODY = {
    "question": {
        "model": "smollm2-135m",
        "recipe": {"sequence_length": 2048},
        "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 8},
    },
    "on": "any",
}
MOST_SECONDS = 180.0
MOST_OFF_FRACTION = 0.03


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="traincost-launch-") as name:
        folder = Path(name)
        with serving(folder, with_worker=True) as address, Client(f"http://{address}") as client:
            started = time.monotonic()
            found = client.launch_check(BODY, lambda _: None)
            seconds = time.monotonic() - started
            trace = len(client.launch_checks.trace(found.id)) if found.files else 0
    print(launch_check_report(found))
    live = [one for probe in found.probes for one in probe.measurements if one.operation == "live_bytes_peak"]
    worst = max((abs((one.ratio or 0.0) - 1) for one in live), default=1.0)
    statuses = [probe.status for probe in found.probes]
    print(f"\n{seconds:.0f} s from asking to the answer, of {MOST_SECONDS:.0f} s; probes: {', '.join(statuses)}")
    print(f"live bytes at two depths, steps 1 and 3: off by {worst:.4%} at most; the trace: {trace} bytes")
    if seconds > MOST_SECONDS or {*statuses} != {"succeeded"} or worst > MOST_OFF_FRACTION or not trace:
        sys.exit(1)


if __name__ == "__main__":
    main()
