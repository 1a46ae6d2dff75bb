"""What programs launch when SkyPilot is real but for its launch: each item is a program and a task.yaml."""

import json
import os
import runpy
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any


def ended(program: str, task: str) -> int:
    """The exit status of a program that is given a task's file."""
    sys.argv = [program, task]
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def main() -> None:
    import sky

    launched: list[Any] = []
    sky.launch = launched.append
    sky.stream_and_get = lambda _: None
    found = []
    with TemporaryDirectory() as folder:
        file = Path(folder) / "task.yaml"
        for program, content in json.load(sys.stdin):
            file.write_text(content, encoding="utf-8")
            launched.clear()
            with redirect_stdout(StringIO()) as said, redirect_stderr(StringIO()) as warned:
                code = ended(program, os.fspath(file))
            gpus = [dict(one.accelerators or {}) for task in launched for one in task.resources]
            envs = [dict(task.envs) for task in launched]
            found.append(
                {"code": code, "said": said.getvalue(), "warned": warned.getvalue(), "gpus": gpus, "envs": envs}
            )
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
