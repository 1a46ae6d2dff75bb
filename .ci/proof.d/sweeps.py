"""Every case of the sweeps of which `pytest` tries a fixed sample."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SWEEPS = "from tests.amounts import"
"""A test that imports this tries a sample."""


def main() -> None:
    files = sorted(
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if SWEEPS in path.read_text(encoding="utf-8")
    )
    print(f"{len(files)} files: {', '.join(files)}", flush=True)
    whole = {**os.environ, "TRAINCOST_TEST_WHOLE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "-o", "timeout=1800", *files]
    sys.exit(subprocess.run(command, cwd=ROOT, env=whole, check=False).returncode)


if __name__ == "__main__":
    main()
