"""Runs a command in a root folder as an engine runs it in a container: namespaces, user, mounts, rights, no more.

The first process is process 1, as there; a network is of its own and reaches nobody. PATH and what the image says are
the only variables.
"""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

SETTING_UP = """
set -e
root=$1 how=$2; shift 2
mount --bind "$root" "$root"
while [ "$1" != -- ]; do
    case $1 in
        bind) mount --bind "$2" "$root$3"; shift 3 ;;
        read) [ -e "$root$3" ] || touch "$root$3"
            mount --bind "$2" "$root$3"; mount -o remount,ro,bind "$root$3"; shift 3 ;;
        scratch) mount -t tmpfs -o mode=1777 tmpfs "$root$2"; shift 2 ;;
    esac
done
shift
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
mkdir "$root/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -o "remount,$how,bind" "$root"
exec chroot "$root" "$@"
"""
NAMESPACES = ("--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child")
STOP_SECONDS = 15
"""What docker-compose.yml grants a container between SIGTERM and SIGKILL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What an engine is told about one container."""

    root: Path
    user: str = "root"
    folder: str = "/"
    """Where its command begins."""
    environment: Mapping[str, str] = field(default_factory=dict)
    volumes: Mapping[str, Path] = field(default_factory=dict)
    """What stands in the place of each folder of the root, and may be written."""
    read: Mapping[str, Path] = field(default_factory=dict)
    """What stands in the place of each file or folder, and may not."""
    scratch: Sequence[str] = ()
    """Folders in memory."""
    is_read_only: bool = False
    network: str = ""
    """The file of a network; none for this machine's own."""

    def command(self, words: Sequence[str]) -> list[str]:
        """What runs a command as the container's first process."""
        mounts = [word for place, given in self.volumes.items() for word in ("bind", str(given), place)]
        mounts += [word for place, given in self.read.items() for word in ("read", str(given), place)]
        mounts += [word for place in self.scratch for word in ("scratch", place)]
        how = "ro" if self.is_read_only else "rw"
        setting_up = ["sh", "-c", SETTING_UP, "sh", str(self.root), how, *mounts, "--"]
        return [*_joining(self.network), "unshare", *NAMESPACES, *setting_up, *self._begun(words)]

    def run(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command to its end as the first process of a container of its own."""
        command, variables = self.command(words), self.variables()
        return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)

    def beside(self, process: int, words: Sequence[str]) -> list[str]:
        """What runs another command in the container of a first process, as `docker exec` does."""
        entered = ["nsenter", "--target", str(process), "--mount", "--pid", "--uts", "--ipc", "--net", "--root"]
        return [*entered, *self._begun(words)]

    def variables(self) -> dict[str, str]:
        """The variables that its commands have; HOME is the user's own where none is given."""
        return {"HOME": self._of_user(5), **self.environment}

    def _begun(self, words: Sequence[str]) -> list[str]:
        begin = ["sh", "-c", 'cd "$0" && exec "$@"', self.folder, *words]
        return begin if self.user in {"root", "0"} else [*self._lowered(), *begin]

    def _lowered(self) -> list[str]:
        """The user, with no right of root's and no way back to one."""
        names = [f"--reuid={self.user}", f"--regid={self._of_user(3)}", "--clear-groups"]
        return ["setpriv", *names, "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]

    def _of_user(self, place: int) -> str:
        """What the image's own list of users says of this one: 3 the group, 5 the home."""
        lines = (self.root / "etc" / "passwd").read_text(encoding="utf-8").splitlines()
        (found,) = [row[place] for row in (line.split(":") for line in lines) if self.user in {row[0], row[2]}]
        return found


def _joining(network: str) -> list[str]:
    return ["nsenter", f"--net={network}"] if network else []


@contextmanager
def new_network() -> Iterator[str]:
    """A network that has nothing but its own loopback: its file."""
    command = ["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep infinity"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as held:
        assert held.stdout is not None
        assert held.stdout.readline() == "up\n"
        try:
            yield f"/proc/{held.pid}/ns/net"
        finally:
            held.kill()


class Running:
    """A container whose command runs; what it says goes to a file."""

    def __init__(self, container: Container, words: Sequence[str], said: Path) -> None:
        self.container = container
        with said.open("ab") as file:
            self._process = subprocess.Popen(
                container.command(words), env=container.variables(), stdout=file, stderr=file
            )

    @property
    def first(self) -> int:
        """The first process, as this machine counts processes; 0 where it has not begun or has ended."""
        own = self._process.pid
        try:
            children = Path(f"/proc/{own}/task/{own}/children").read_text(encoding="ascii").split()
        except OSError:
            return 0
        return int(children[0]) if children else 0

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def run(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Another command beside the first."""
        command = self.container.beside(self.first, words)
        variables = self.container.variables()
        return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)

    def stop(self) -> int:
        """Tell the first process to end, as an engine does; its exit status."""
        if first := self.first:
            os.kill(first, signal.SIGTERM)
        try:
            return self._process.wait(timeout=STOP_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
