"""Images built from the Dockerfile in a clean root, and served there as a user without rights."""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from service.catalogue import shipped_catalogue
from service.features.estimates.answers import answer
from service.validation.questions import read_question
from service.validation.reading import to_bytes
from tests.api.asking import QUESTION
from tests.image_builds import Bench, Image, NotBuilt, build, copy_root, make_context, run, size_bytes
from tests.image_roots import Unobtainable, make_python_root, refuse_unable, registries
from tests.image_runs import Container, Running, new_network
from tests.image_services import ask, await_healthy, cannot_write, command, hardened, lacks, rights

IMAGES = {"api", "worker", "ray"}
NO_ROOT = 3
"""Exit status where a clean root cannot be made here."""
TORCH = "torch==2.13.0"
GPU = {"slug": "own-gpu", "memory_bytes": 96e9, "memory_bytes_per_s": 3e12, "bf16_flop_per_s": 8e14, "board_watts": 500}
LAUNCH_CHECK = {"question": QUESTION, "probes": ["gemm"], "time_budget_seconds": 30, "on": "any"}
MEASURED_SECONDS = 120.0
MOST_STOP_SECONDS = 10.0


class Proof:
    """What is found, said line by line; whatever is not so is kept."""

    def __init__(self) -> None:
        self.wrong: list[str] = []

    def hold(self, what: str, *, is_so: bool) -> None:
        """Say whether something is so."""
        print(f"  {'yes' if is_so else 'NO '} {what}", flush=True)
        self.wrong += [] if is_so else [what]


def built(stage: str, base: Path, scratch: Path, bench: Bench, first: str = "") -> Image:
    """Build a stage on a copy of a base, after one command of its own; say what it took."""
    image = Image(root=scratch / stage)
    copy_root(base, image.root)
    if first:
        run(first, image, bench)
    base_bytes = size_bytes(image.root)
    build(stage, image, bench)
    whole_bytes = size_bytes(image.root)
    print(f"{stage}: {whole_bytes / 1e6:.0f} MB, {(whole_bytes - base_bytes) / 1e6:.0f} MB of them beyond its base")
    for line, seconds in image.took:
        print(f"  {seconds:5.1f} s  RUN {line}", flush=True)
    return image


def key_of(container: Container, scope: str) -> str:
    """A key that the image's own command line makes."""
    made = container.run(["traincost", "keys", "create", "--name", scope, "--scope", scope, "--json"])
    return str(json.loads(made.stdout)["key"])


def serves(proof: Proof, image: Image, network: str, scratch: Path) -> tuple[Running, dict[str, str]]:
    """Start the API image, ask it, stop it, start it again; what runs at the end, and its keys."""
    container = hardened("api", image, network, scratch, {"TRAINCOST_NO_WORKER": "true"})
    said = scratch / "api.log"
    refused = container.run(command("api"))
    is_refused = refused.returncode == 2 and refused.stderr.count("\n") == 1 and "--insecure" in refused.stderr
    proof.hold("without keys it says in one line that it does not answer to everybody", is_so=is_refused)
    keys = {scope: key_of(container, scope) for scope in ("write", "worker")}
    serving = Running(container, command("api"), said)
    print(f"  {await_healthy(serving):.1f} s until the image's health check is content")
    answers(proof, network, keys["write"])
    found = rights(serving)
    proof.hold(
        "its process is no root and has no rights", is_so=found["Uid"] == image.user and found["CapEff"] == "0" * 16
    )
    proof.hold("it gets none back", is_so=found["NoNewPrivs"] == "1" and found["CapBnd"] == "0" * 16)
    proof.hold("its root file system is read-only, /tmp is not", is_so=cannot_write(serving))
    proof.hold("it has neither torch nor Ray", is_so=lacks(serving, "torch", "ray"))
    started = time.monotonic()
    status = serving.stop()
    seconds = time.monotonic() - started
    proof.hold(
        f"as process 1 it ends at SIGTERM, after {seconds:.1f} s", is_so=status == 0 and seconds < MOST_STOP_SECONDS
    )
    again = Running(container, command("api"), said)
    await_healthy(again)
    status, content = ask(network, "GET", "/v1/gpus/own-gpu", key=keys["write"])
    kept = status == 200 and json.loads(content)["board_watts"] == GPU["board_watts"]
    proof.hold("what was written is there after a new start, in the volume", is_so=kept)
    return again, keys


def answers(proof: Proof, network: str, key: str) -> None:
    """Ask what a stranger and a caller with a key would ask."""
    proof.hold("it is ready", is_so=ask(network, "GET", "/readyz")[0] == 200)
    proof.hold("without a key nobody is answered", is_so=ask(network, "POST", "/v1/estimates", QUESTION)[0] == 401)
    catalogue = shipped_catalogue()
    wanted = to_bytes(answer(read_question(QUESTION, catalogue), catalogue))
    found = ask(network, "POST", "/v1/estimates", QUESTION, key)
    proof.hold(f"an estimate is that of this source, byte for byte: {len(wanted)} bytes", is_so=found == (200, wanted))
    proof.hold("it writes", is_so=ask(network, "POST", "/v1/gpus", GPU, key)[0] == 201)


def measures(proof: Proof, image: Image, network: str, scratch: Path, keys: dict[str, str]) -> None:
    """Have the worker image do a launch check for the API image."""
    container = hardened("worker", image, network, scratch, {"TRAINCOST_TOKEN": keys["worker"]})
    worker = Running(container, command("worker"), scratch / "worker.log")
    try:
        end = time.monotonic() + MEASURED_SECONDS
        while not json.loads(ask(network, "GET", "/v1/workers", key=keys["write"])[1])["items"]:
            if worker.has_ended or time.monotonic() > end:
                print((scratch / "worker.log").read_text(), end="")
                proof.hold("the worker registers itself", is_so=False)
                return
            time.sleep(0.1)
        _, content = ask(network, "POST", "/v1/launch-checks", LAUNCH_CHECK, keys["write"])
        path = f"/v1/launch-checks/{json.loads(content)['id']}"
        end = time.monotonic() + MEASURED_SECONDS
        found = {"status": "queued"}
        while found["status"] in {"queued", "running"} and time.monotonic() < end:
            time.sleep(0.5)
            found = json.loads(ask(network, "GET", path, key=keys["write"])[1])
        proof.hold(f"a launch check that it was given {found['status']}", is_so=found["status"] == "succeeded")
        proof.hold("no root, on a read-only root", is_so=rights(worker)["Uid"] == image.user and cannot_write(worker))
        proof.hold("it has neither framework nor database driver", is_so=lacks(worker, "fastapi", "sqlalchemy"))
    finally:
        started = time.monotonic()
        status = worker.stop()
        seconds = time.monotonic() - started
        proof.hold(f"as process 1 it ends at SIGTERM, after {seconds:.1f} s", is_so=status == 0)


def proved(wanted: set[str], scratch: Path, base: Path | None) -> list[str]:
    """Build and try images; what is not as it should be."""
    proof, started = Proof(), time.monotonic()
    if base is None:
        base = scratch / "base"
        make_python_root(base)
    print(f"a clean root, Debian with Python: {size_bytes(base) / 1e6:.0f} MB, {time.monotonic() - started:.0f} s")
    make_context(scratch / "context")
    bench = Bench(registries=registries(), context=scratch / "context", built={}, log=scratch / "build.log")
    bench.built["build"] = built("build", base, scratch, bench)
    with new_network() as network:
        api, keys = serves(proof, built("api", base, scratch, bench), network, scratch)
        if "worker" in wanted:
            print(f"worker, on Debian with {TORCH} for processors: an image for GPUs is got from a registry of images")
            image = built("worker", base, scratch, bench, f"pip install --no-cache-dir {TORCH} numpy")
            measures(proof, image, network, scratch, keys)
        if "ray" in wanted:
            built("ray", base, scratch, bench)
        api.stop()
    return proof.wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", default="api,worker", help="api,worker,ray or some of them; api in any case")
    parser.add_argument("--into", type=Path, help="an empty folder that keeps the roots and what commands said")
    parser.add_argument("--base", type=Path, help="the base that an earlier run kept")
    given = parser.parse_args()
    wanted = set(given.images.split(","))
    if wanted - IMAGES or (given.into and (not given.into.is_dir() or any(given.into.iterdir()))):
        parser.error(f"--images takes {', '.join(sorted(IMAGES))}, and --into an empty folder")
    try:
        refuse_unable()
        with tempfile.TemporaryDirectory(prefix="traincost-images-") as folder:
            wrong = proved(wanted, given.into or Path(folder), given.base)
    except Unobtainable as error:
        print(f"no clean root can be made here, which needs {error}", file=sys.stderr)
        sys.exit(NO_ROOT)
    except NotBuilt as error:
        sys.exit(str(error))
    if wrong:
        sys.exit(f"{len(wrong)} things are not so")


if __name__ == "__main__":
    main()
