"""A Slurm for tests, started on loopback and ended with its users.

Partition `here` is this machine, with 8 GPUs that it does not have: jobs run there. Partition `many` has 1,024 nodes of
8 that are switched off: it judges scripts of any size and runs none.
"""

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from tests.needing import PATH, need

CLUSTER = "traincost"
GPUS_EACH = 8
NODES = 1024

_START_SECONDS = 60.0

Alongside = Callable[[Path, Mapping[str, str]], AbstractContextManager[Mapping[str, str]]]
"""Runs beside the controller, started before it in the same folder; gives what the environment has to say of it."""

_CONF = """\
ClusterName={cluster}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
AccountingStoragePass={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
SchedulerType=sched/backfill
GresTypes=gpu
EnforcePartLimits=ALL
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=-1
NodeName={host} NodeAddr=127.0.0.1 CPUs=1 RealMemory=1000 Gres=gpu:{gpus} State=UNKNOWN
NodeName=off[1-{nodes}] NodeAddr=127.0.0.1 Port={unused} CPUs=64 RealMemory=1000000 Gres=gpu:{gpus} State=CLOUD
PartitionName=here Nodes={host} Default=YES MaxTime=10 State=UP
PartitionName=many Nodes=off[1-{nodes}] MaxTime=30-00:00:00 State=UP
"""


@contextmanager
def running(
    *lines: str, files: Mapping[str, str] | None = None, beside: Alongside | None = None
) -> Iterator[dict[str, str]]:
    """The environment in which sbatch reaches a Slurm with further lines in slurm.conf and further files beside it.

    Skips the test where none can be started, or fails it where nothing may be skipped.
    """
    need("slurm")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="traincost-slurm-")))
        environment = {**os.environ, "PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}
        folder.chmod(0o711)
        for name, text in {**_files(folder, lines), **(files or {})}.items():
            (folder / name).write_text(text, encoding="utf-8")
        for name in ("state", "spool"):
            (folder / name).mkdir()
        key, sock = folder / "munge.key", folder / "munge.socket"
        subprocess.run(["mungekey", "--create", f"--keyfile={key}"], env=environment, check=True, timeout=60)
        # a folder below one that everybody may write, as temporary ones are, wants --force
        munge = ["munged", "--foreground", "--force", f"--socket={sock}"]
        munge += [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
        stack.enter_context(daemon(folder, environment, *munge))
        await_start(folder, "munged", sock.exists)
        if beside is not None:
            environment |= stack.enter_context(beside(folder, environment))
        stack.enter_context(daemon(folder, environment, "slurmctld", "-D"))
        stack.enter_context(daemon(folder, environment, "slurmd", "-D"))
        await_start(folder, "slurmd", lambda: _is_ready(environment))
        yield environment


def _files(folder: Path, lines: tuple[str, ...]) -> dict[str, str]:
    controller, daemon, unused = free_ports(3)
    conf = _CONF.format(
        cluster=CLUSTER,
        folder=folder,
        host=socket.gethostname().partition(".")[0],
        controller=controller,
        daemon=daemon,
        unused=unused,
        gpus=GPUS_EACH,
        nodes=NODES,
    )
    return {
        "slurm.conf": conf + "".join(f"{line}\n" for line in lines),
        "gres.conf": f"Name=gpu File={folder}/gpu[1-{GPUS_EACH}]\n",
        **{f"gpu{number}": "" for number in range(1, GPUS_EACH + 1)},
        "cgroup.conf": "CgroupPlugin=cgroup/v1\n",
    }


def free_ports(count: int) -> list[int]:
    """Ports on which nobody listens."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextmanager
def daemon(folder: Path, environment: Mapping[str, str], *command: str) -> Iterator[None]:
    """A program that runs until it is not needed any more; what it says stands in the folder."""
    with (folder / f"{command[0]}.said").open("w") as said:
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=said, cwd=folder)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)


def await_start(folder: Path, name: str, is_ready: Callable[[], bool]) -> None:
    """Wait until a program is ready; what all programs said is the error where it takes too long."""
    end = time.monotonic() + _START_SECONDS
    while not is_ready():
        if time.monotonic() > end:
            said = "\n".join(file.read_text()[-2000:] for file in sorted(folder.glob("*.said")))
            raise TimeoutError(f"{name} did not start:\n{said}")
        time.sleep(0.1)


def _is_ready(environment: Mapping[str, str]) -> bool:
    command = ["sinfo", "--noheader", "--partition=here", "--format=%T"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.strip() == "idle"
