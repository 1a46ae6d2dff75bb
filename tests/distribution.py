"""Distribution of tests over processes: each file on one, so that its fixtures run once; long files first.

Whichever process has nothing left takes the next file; what takes long and comes last would have the others wait.
"""

import re
from typing import Any

import pytest

LONGEST = (
    "tests/house/test_linters.py", "tests/test_outages.py", "tests/api/test_contract.py", "tests/worker/test_faults.py",
    "tests/worker/test_ray_runner.py", "tests/test_libreoffice.py", "tests/features/calibrations/test_calibrations.py",
    "tests/store/test_backups.py", "tests/store/test_upgrade.py", "tests/test_reconcile.py",
    "tests/formats/test_real_tools.py", "tests/worker/test_probe_process.py", "tests/worker/probes/test_step.py",
    "tests/contract", "tests/page", "tests/worker/test_launch_check.py", "tests/test_slurm_hooks.py",
    "tests/test_replicas.py", "tests/test_serve.py", "tests/planner", "tests/api/test_hostile",
    "tests/features/catalogue/test_hostile", "tests/features/accounts/test_audit.py", "tests/store/test_database.py",
    "tests/api/test_paths.py", "tests/test_capacity.py", "tests/worker", "tests/test_stopping.py", "tests/cli",
    "tests/test_", "tests/formats", "tests/tabular", "tests/calibration", "tests/house", "tests/store",
    "tests/estimator", "tests/features/solve", "tests/features",
)  # fmt: skip
"""Files and folders, what takes longest first. The others, of which none takes long, follow."""

TOGETHER = (
    ("tests/evaluation/", "tests/features/accuracy/"),  # the accuracy of all shipped rows, which takes seconds
    # a service that every caller has asked everything
    ("tests/features/accounts/test_audit.py", "tests/api/test_authorization.py"),
    tuple(f"tests/house/test_{name}.py" for name in ("docstrings", "imports", "names", "sources")),  # syntax trees
)
"""Starts of names of tests that share what a process makes once."""

KINDS = re.compile(r"[\[-](sqlite|postgresql)[]-]")
"""What stands in the name of a test that runs on each kind of database."""


def unit_of(name: str) -> str:
    """What runs in one process: a file on one kind of database, a room's examples, or files that belong together."""
    file, _, test = name.partition("::")
    if file.startswith("service/"):
        return "/".join(file.split("/")[:2])
    for starts in TOGETHER:
        if file.startswith(starts):
            return starts[0]
    kind = KINDS.search(test)
    return f"{file} {kind[1]}" if kind else file


def _place(name: str) -> tuple[int, str]:
    rank = next((place for place, start in enumerate(LONGEST) if name.startswith(start)), len(LONGEST))
    kind = KINDS.search(name) if rank == len(LONGEST) else None
    return rank, "" if kind is None else kind[1]


def longest_first(items: list[pytest.Item]) -> None:
    """Put the tests into the order in which files are handed out, those of one kind of database together."""
    items.sort(key=lambda item: _place(item.nodeid))


def scheduler(config: pytest.Config, log: Any) -> Any:
    """What hands the files out, in the order of the tests."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
        """Hands out the next file."""

        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

    config.option.loadscopereorder = False
    return ByFile(config, log)
