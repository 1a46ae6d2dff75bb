"""A clean root folder in the place of a base image: Debian's minimum with Python, and what pip of this machine reads.

No engine is needed, but root and a mirror of Debian are. What reaches registries comes from outside, as mounts and
variables of one step, and stays in no image.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from ast import literal_eval
from dataclasses import dataclass
from pathlib import Path

SUITE = "bookworm"
"""The release of Debian whose Python is 3.11, as the Dockerfile's base image promises."""
PACKAGES = "python3,python3-venv,ca-certificates"
PROGRAMS = ("mmdebstrap", "unshare", "nsenter", "setpriv", "chroot", "mount", "ip", "curl")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Unobtainable(Exception):
    """What a clean root needs and this machine lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registries:
    """How pip reaches packages from here."""

    environment: dict[str, str]
    folders: tuple[Path, ...]
    """Files and folders of this machine that the variables name."""


def registries() -> Registries:
    """What this machine's pip is told, as variables, whatever file says it."""
    done = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    pairs = [line.partition("=") for line in done.stdout.splitlines()]
    own = sorted(pairs, key=lambda pair: pair[0].startswith(":env:"))  # a variable outdoes a file
    told = {"PIP_" + name.rpartition(".")[2].upper().replace("-", "_"): literal_eval(value) for name, _, value in own}
    proxies = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    words = [word.removeprefix("file://") for value in told.values() for word in value.split()]
    named = [Path(word) for word in words if word.startswith("/") and Path(word).exists()]
    folders = {path.parent if path.name == "simple" else path for path in named}  # an index has its files beside it
    return Registries(environment={**told, **proxies}, folders=tuple(sorted({*folders, Path("/etc/resolv.conf")})))


def refuse_unable() -> None:
    """Raise Unobtainable where this machine makes no clean root: who runs this, programs, mounts."""
    if os.geteuid() != 0:
        raise Unobtainable("root: only root mounts and changes its root folder")
    lacking = [name for name in PROGRAMS if shutil.which(name, path=f"{os.environ.get('PATH', '')}:{PATH}") is None]
    if lacking:
        raise Unobtainable(f"programs: {', '.join(lacking)} (apt-get install mmdebstrap util-linux iproute2 curl)")
    with tempfile.TemporaryDirectory() as folder:
        tried = ["unshare", "--mount", "--pid", "--net", "--fork", "mount", "-t", "tmpfs", "tmpfs", folder]
        if subprocess.run(tried, capture_output=True, check=False).returncode != 0:
            raise Unobtainable("the right to make namespaces and mounts: a container needs CAP_SYS_ADMIN")


def make_python_root(folder: Path) -> None:
    """Debian's minimum with Python 3.11 and pip in /usr/local, as python:3.11-slim has them; no compiler."""
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unobtainable(f"a mirror of Debian: {' '.join(done.stderr.split())[-300:]}")
    subprocess.run(
        ["chroot", str(folder), "/usr/bin/python3", "-m", "venv", "/usr/local"], env={"PATH": PATH}, check=True
    )
