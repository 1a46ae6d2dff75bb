"""Time to the first answer of a fresh installation, and the memory it holds.

Run from an empty folder, by the Python of the installation, with the path of its `traincost` program.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from service.client import Client

QUESTION = {
    "model": "llama-3.1-8b",
    "recipe": {"sequence_length": 8192, "global_batch": 1024, "training_tokens": 15e12},
    "layout": {"tensor": 2, "zero_stage": 1},
    "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 64},
    "price": {"usd_per_gpu_hour": 2.5},
}
MOST_BYTES = 150 * 10**6


def ask(address: str) -> Any:
    """The answer to one real question."""
    body = json.dumps(QUESTION).encode()
    request = Request(f"{address}/v1/estimates", data=body, headers={"content-type": "application/json"})
    with urlopen(request, timeout=30) as response:
        return json.load(response)


def check(answer: Any) -> None:
    """Exact counts, and one figure of each part."""
    expected = {"total": 8_030_261_248, "active": 8_030_261_248}
    found = {name: answer["parameters"][name] for name in expected}
    if found != expected:
        sys.exit(f"parameters {found}, expected {expected}")
    if answer["totals"]["steps"] != 1_788_140:
        sys.exit(f"{answer['totals']['steps']} steps, expected ceil(15e12 / (1024 x 8192)) = 1,788,140")
    hours, cost = answer["totals"]["gpu_hours"]["value"], answer["totals"]["cost_usd"]["value"]
    if not (hours > 0 and abs(cost - 2.5 * hours) < 1e-6 * cost):
        sys.exit(f"{cost} USD is not 2.5 x {hours} GPU-hours")


def check_client(address: str, answer: Any) -> None:
    """The installed client reads the same answer, and says that it is typed."""
    with Client(address) as client:
        found = client.estimate(QUESTION)
    if found.id != answer["id"] or found.totals is None or found.totals.steps != answer["totals"]["steps"]:
        sys.exit(f"the client reads {found.id}, expected {answer['id']}")
    if not files("service").joinpath("py.typed").is_file():
        sys.exit("type checkers are not told that the package is typed")


def resident_bytes(pid: int) -> int:
    """Memory that a process holds."""
    status = Path(f"/proc/{pid}/status").read_text()
    (kilobytes,) = re.findall(r"VmRSS:\s+(\d+) kB", status)
    return int(kilobytes) * 1024


def main(program: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TRAINCOST_DATABASE_URL": f"sqlite:///{folder}/traincost.db"}
        started = time.monotonic()
        server = subprocess.Popen([program, "serve", "--port", "0"], env=environment, stdout=subprocess.PIPE, text=True)
        try:
            lines = server.stdout or ()
            address = next(found[0] for line in lines if (found := re.search(r"http://[\d.]+:\d+", line)))
            answer = ask(address)
            check(answer)
            seconds, held = time.monotonic() - started, resident_bytes(server.pid)
            check_client(address, answer)
        finally:
            server.terminate()
            server.wait(10)
    print(f"first answer after {seconds:.2f} s (promised: 10); the process holds {held / 1e6:.0f} MB (promised: 150)")
    if held > MOST_BYTES:
        sys.exit(f"more than {MOST_BYTES / 1e6:.0f} MB")


if __name__ == "__main__":
    main(sys.argv[1])
