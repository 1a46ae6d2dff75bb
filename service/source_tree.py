"""Generated files of the source tree. An installed package has none."""

from collections.abc import Callable
from pathlib import Path

from service.errors import StartupError

ROOT = Path(__file__).parents[1]
"""What holds the package: the source tree, or a folder of installed packages."""


def write_generated(file: Path, content: Callable[[], bytes]) -> Path:
    """Write a generated file into the source tree."""
    if not (ROOT / "pyproject.toml").is_file():
        raise StartupError(f"{file.name} is written in the source tree, and there is none around the package")
    file.write_bytes(content())
    return file
