"""Slurm's accounting for tests: slurmdbd and a MariaDB, started here and ended with their users."""

import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests import slurm
from tests.needing import need

_CONF = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct_db
"""
"""MariaDB is reached by its socket, which MYSQL_UNIX_PORT names."""

_LINES = (
    "AccountingStorageType=accounting_storage/slurmdbd",
    "AccountingStorageHost=127.0.0.1",
    "AccountingStorageTRES=gres/gpu",
    "AccountingStoreFlags=job_comment,job_script",
)
"""Without job_comment Slurm forgets the comment, and with it the estimate, when the job ends."""

_OWNERS = (("cluster", slurm.CLUSTER), ("account", "tests"), ("user", "root", "account=tests"))


@contextmanager
def accounting(*lines: str, files: Mapping[str, str] | None = None) -> Iterator[dict[str, str]]:
    """The environment of a Slurm that keeps account of its jobs, whose sacct tells of them.

    Skips the test where none can be started, or fails it where nothing may be skipped.
    """
    need("slurm-accounting")
    (port,) = slurm.free_ports(1)
    own = (f"AccountingStoragePort={port}", *_LINES, *lines)

    @contextmanager
    def beside(folder: Path, environment: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
        with ExitStack() as stack:
            named = {"MYSQL_UNIX_PORT": stack.enter_context(_mariadb(folder, environment))}
            conf = folder / "slurmdbd.conf"
            conf.write_text(_CONF.format(folder=folder, port=port, host=socket.gethostname().partition(".")[0]))
            conf.chmod(0o600)
            stack.enter_context(slurm.daemon(folder, {**environment, **named}, "slurmdbd", "-D"))
            slurm.await_start(folder, "slurmdbd", lambda: _does(environment, "show", "cluster"))
            for owner in _OWNERS:
                subprocess.run(
                    ["sacctmgr", "--immediate", "add", *owner],
                    env=environment,
                    check=True,
                    capture_output=True,
                    timeout=60,
                )
            yield {}

    with slurm.running(*own, files=files, beside=beside) as environment:
        yield environment


def _does(environment: Mapping[str, str], *words: str) -> bool:
    command = ["sacctmgr", "--noheader", *words]
    return subprocess.run(command, env=environment, capture_output=True, check=False, timeout=60).returncode == 0


@contextmanager
def _mariadb(folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """The socket of a new MariaDB that no network reaches."""
    with ExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="traincost-mariadb-")))
        where = [f"--datadir={data}", "--user=root"]
        make = ["mariadb-install-db", "--no-defaults", *where, "--auth-root-authentication-method=normal"]
        subprocess.run(make, env=environment, check=True, capture_output=True, timeout=120)
        sock = f"{data}/mysql.sock"
        serve = ["mariadbd", "--no-defaults", *where, f"--socket={sock}", "--skip-networking", f"--pid-file={data}/pid"]
        stack.enter_context(slurm.daemon(folder, environment, *serve))
        slurm.await_start(folder, "mariadbd", Path(sock).exists)
        yield sock
