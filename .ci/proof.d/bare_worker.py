"""A worker in an environment that holds httpx and annotated-types, with this package beside them."""

import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from service.catalogue import shipped_catalogue
from service.jobs.jobs import NewJob, create_jobs, read_job
from service.store.database import prepare_database
from service.worker.devices import TORCH
from tests.house.source import ROOT
from tests.live import serving

JOB = "lch_bare"
MOST_SECONDS = 60.0


def installed(folder: Path) -> Path:
    """The Python of a new environment with httpx, annotated-types and this package, without what else it asks for."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "httpx", "annotated-types"], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", str(ROOT)], check=True)
    return python


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="traincost-bare-") as name:
        folder = Path(name)
        python = installed(folder / "environment")
        packages = subprocess.run([python, "-m", "pip", "freeze"], capture_output=True, text=True, check=True).stdout
        print("installed:", ", ".join(re.findall(r"^[\w-]+", packages, re.MULTILINE)))
        engine = prepare_database(f"sqlite:///{folder}/traincost.db", shipped_catalogue())
        tasks = [{"probe": "context", "parameters": {}, "timeout_seconds": 20.0, "ranks": 1}]
        create_jobs(engine, [NewJob(id=JOB, kind="launch-check", payload={"tasks": tasks}, timeout_seconds=60.0)])
        with serving(folder) as address:
            started = time.monotonic()
            program = str(python.with_name("traincost"))
            words = [program, "worker", "--once", "--max-idle", "10", "--url", f"http://{address}"]
            bare = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
            done = subprocess.run(
                words, cwd=folder, env=bare, capture_output=True, text=True, check=False, timeout=MOST_SECONDS
            )
            seconds = time.monotonic() - started
        job = read_job(engine, JOB)
        engine.dispose()
    if done.returncode or job is None or job.error is None or job.error["code"] != "torch_missing":
        sys.exit(f"the worker ended with {done.returncode}, the job is {job}: {done.stderr}")
    print(f"the worker did its job in {seconds:.1f} s; without torch it says: {job.error['message']}")
    if TORCH not in job.error["message"]:
        sys.exit("that does not say how to install torch")


if __name__ == "__main__":
    main()
