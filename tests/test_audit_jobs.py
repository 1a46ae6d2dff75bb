"""The dry run over a real Slurm with accounting: sacct tells of its jobs and of their scripts."""

import json
import subprocess
import time
from pathlib import Path

from tests.features.checks.test_objects import LARGE, MEGATRON, SMALL
from tests.prestarted import ran
from tests.slurm_accounting import accounting

SCRIPT = (
    "#!/bin/bash\n#SBATCH --partition=here --output=/dev/null --gpus-per-node=8\n"
    "if [ -e /nowhere ]; then\nsrun torchrun {command}\nfi\n"
)
JOBS = {
    "fits": SCRIPT.format(command=MEGATRON.format(layers=SMALL)),
    "large": SCRIPT.format(command=MEGATRON.format(layers=LARGE)),
    "array": SCRIPT.format(command=MEGATRON.format(layers=SMALL)).replace("--gpus", "--array=1-2 --gpus"),
    "other": SCRIPT.format(command="train.py"),
    "cpus": SCRIPT.format(command="train.py").replace(" --gpus-per-node=8", ""),
}
LONGEST_SECONDS = 90.0


def test_jobs_of_slurm_are_reported_with_their_verdicts(tmp_path: Path) -> None:
    with accounting() as slurm:
        ids = {}
        for name, script in JOBS.items():
            (tmp_path / name).write_text(script, encoding="utf-8")
            command = ["sbatch", "--parsable", str(tmp_path / name)]
            ids[name] = subprocess.run(command, env=slurm, capture_output=True, text=True, check=True).stdout.strip()
        end = time.monotonic() + LONGEST_SECONDS
        found: dict[str, dict[str, str]] = {}
        while time.monotonic() < end and {one["state"] for one in found.values()} != {"COMPLETED"}:
            done = ran(["service", "audit-jobs", "--json", "--site", "gpu=h100"], tmp_path, slurm)
            assert done.returncode == 0, done.stderr
            found = {one["job"].partition("_")[0]: one for one in json.loads(done.stdout)["jobs"]}
            time.sleep(1)
    verdicts = {name: found[job]["verdict"] for name, job in ids.items() if job in found}
    assert verdicts == {"fits": "ok", "large": "deny", "array": "ok", "other": "unknown"}
    assert found[ids["other"]]["not_judged"] == "no_training"
    assert "out of memory" in found[ids["large"]]["reason"]
