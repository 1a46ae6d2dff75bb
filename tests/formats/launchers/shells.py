"""What a launcher's script starts: a shell runs it, with programs that print their arguments."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

VARIABLES = {
    "NODE_RANK": "0", "MASTER_ADDR": "first", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "first",
    "JOB_COMPLETION_INDEX": "0", "VC_TASK_INDEX": "0", "VC_NODE_HOSTS": "first,second", "SLURM_NODEID": "0",
    "SLURM_JOB_NODELIST": "first", "SKYPILOT_NODE_RANK": "0", "SKYPILOT_NODE_IPS": "first\nsecond",
    "DSTACK_NODE_RANK": "0", "DSTACK_MASTER_NODE_IP": "first",
}  # fmt: skip
"""What launchers tell a node."""

TELL = '#!/bin/bash\nprintf "%s\\0" "$PWD" "${0##*/}" "$@" > "$TOLD"\n'
"""A program that tells where and how it was called."""

SRUN = '#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\nexec "$@"\n'


LAUNCHERS = {"torchrun": TELL, "accelerate": TELL}
SLURM = {"srun": SRUN, "scontrol": "#!/bin/bash\necho first\n"}


def started(script: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """The command that a script ends in, and the files that it has made."""
    environment = {**VARIABLES, **with_programs(folder, {**LAUNCHERS, **SLURM}, os.environ["PATH"])}
    subprocess.run(["bash", "-c", script], cwd=place_in(folder), env=environment, check=True, timeout=60)
    return told_in(folder)


def with_programs(folder: Path, bodies: Mapping[str, str], path: str) -> dict[str, str]:
    """Variables under which a shell finds these programs before others, and they know where to tell."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    for name, body in bodies.items():
        program = programs / name
        program.write_text(body, encoding="utf-8")
        program.chmod(0o755)
    return {"TOLD": str(folder / "told"), "PATH": f"{programs}:{path}"}


def place_in(folder: Path) -> Path:
    """An empty folder to start a script in."""
    place = folder / "place"
    place.mkdir(exist_ok=True)
    for file in place.iterdir():
        file.unlink()
    return place


def told_in(folder: Path) -> tuple[list[str], dict[str, str]]:
    """How the program was called, and the files that it saw."""
    called_in, *words = (folder / "told").read_text(encoding="utf-8").split("\0")[:-1]
    return words, {path.name: path.read_text(encoding="utf-8") for path in Path(called_in).iterdir() if path.is_file()}
