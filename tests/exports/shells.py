"""What does a launcher's script start? A shell runs it, with programs that only tell how they were called."""

import json
import os
import subprocess
from pathlib import Path

VARIABLES = {
    "NODE_RANK": "0", "MASTER_ADDR": "first", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "first",
    "JOB_COMPLETION_INDEX": "0", "VC_TASK_INDEX": "0", "VC_NODE_HOSTS": "first,second", "SLURM_NODEID": "0",
    "SLURM_JOB_NODELIST": "first", "SKYPILOT_NODE_RANK": "0", "SKYPILOT_NODE_IPS": "first\nsecond",
    "DSTACK_NODE_RANK": "0", "DSTACK_MASTER_NODE_IP": "first",
}  # fmt: skip
"""What launchers tell a node."""

TELL = """#!/usr/bin/env python3
import json, os, pathlib, sys
files = {path.name: path.read_text() for path in pathlib.Path(".").iterdir() if path.is_file()}
pathlib.Path(os.environ["TOLD"]).write_text(json.dumps([os.path.basename(sys.argv[0]), sys.argv[1:], files]))
"""
"""A program that tells how it was called, and which files it sees."""

SRUN = '#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\nexec "$@"\n'


def started(script: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """The command that a script ends in, and the files that it has made."""
    programs, place, told = folder / "programs", folder / "place", folder / "told.json"
    programs.mkdir(exist_ok=True)
    place.mkdir(exist_ok=True)
    for file in place.iterdir():
        file.unlink()
    bodies = {"torchrun": TELL, "accelerate": TELL, "srun": SRUN, "scontrol": "#!/bin/bash\necho first\n"}
    for name, body in bodies.items():
        path = programs / name
        path.write_text(body, encoding="utf-8")
        path.chmod(0o755)
    environment = {**VARIABLES, "TOLD": str(told), "PATH": f"{programs}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", script], cwd=place, env=environment, check=True, timeout=60)
    name, words, files = json.loads(told.read_text(encoding="utf-8"))
    return [name, *words], files
