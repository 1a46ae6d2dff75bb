"""Builds a stage of the Dockerfile in a root folder, instruction by instruction, as an engine does.

What an instruction gives that nobody here can do is refused, not passed over.
"""

import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.containers import stages
from tests.house.source import ROOT
from tests.image_roots import PATH, Registries
from tests.image_runs import Container

SAID_LATER = {"VOLUME", "EXPOSE", "HEALTHCHECK", "CMD"}
"""What concerns containers, not the files of an image."""


class NotBuilt(Exception):
    """An instruction that fails, or that nobody here can follow."""


@dataclass(slots=True, kw_only=True)
class Image:
    """A root folder, and what containers of it are told."""

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    user: str = "root"
    folder: str = "/"
    took: list[tuple[str, float]] = field(default_factory=list)
    """Each RUN and the seconds that it took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What stages are built with."""

    registries: Registries
    context: Path
    """The files that .dockerignore lets through."""
    built: dict[str, Image]
    """Images that COPY --from names."""
    log: Path
    """Where commands say what they do; whoever reads it may find credentials of registries there."""


def make_context(folder: Path) -> None:
    """Copy what .dockerignore lets through."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    anything, *let_through, nowhere = lines
    if anything != "*" or not all(line.startswith("!") for line in let_through) or not nowhere.startswith("**/"):
        raise NotBuilt(".dockerignore says more than is understood here")
    folder.mkdir()
    for name in (line.removeprefix("!") for line in let_through):
        _copy(ROOT / name, folder / name, shutil.ignore_patterns(nowhere.removeprefix("**/")))


def build(stage: str, image: Image, bench: Bench) -> None:
    """Follow the instructions of a stage, those of the stages that it begins with first."""
    for word, rest in stages()[stage]:
        if word == "ENV":
            image.environment.update(pair.partition("=")[::2] for pair in shlex.split(rest))
        elif word == "USER":
            image.user = rest
        elif word == "WORKDIR":
            image.folder = rest
            inside(image.root, rest).mkdir(parents=True, exist_ok=True)
        elif word == "COPY":
            _take(rest.split(), image, bench)
        elif word == "RUN":
            started = time.monotonic()
            run(rest, image, bench)
            image.took.append((rest, time.monotonic() - started))
        elif word not in SAID_LATER:
            raise NotBuilt(f"nobody here follows {word}")


def copy_root(source: Path, target: Path) -> None:
    """Copy a root folder with its owners and rights."""
    command = ["cp", "--archive", str(source), str(target)]
    subprocess.run(command, check=True)


def inside(root: Path, path: str) -> Path:
    """A path of an image, as a path of this machine."""
    return root / path.lstrip("/")


def size_bytes(root: Path) -> int:
    """Bytes of all files of an image, each once however many names it has."""
    found = {}
    for folder, _, names in os.walk(root):
        for state in ((Path(folder) / name).lstat() for name in names):
            found[state.st_dev, state.st_ino] = state.st_size
    return sum(found.values())


def words_of(rest: str) -> list[str]:
    """What RUN or CMD runs: a list as it stands, a line by the shell."""
    return [str(word) for word in json.loads(rest)] if rest.startswith("[") else ["/bin/sh", "-c", rest]


def run(rest: str, image: Image, bench: Bench) -> None:
    """Run a command with the network and the registries of this machine, and take what was mounted for it away."""
    read = {str(path): path for path in bench.registries.folders}
    made = [place for path in bench.registries.folders for place in _made_for(path, image.root)]
    container = Container(
        root=image.root,
        user=image.user,
        folder=image.folder,
        environment={**bench.registries.environment, **image.environment},
        read=read,
    )
    with bench.log.open("a", encoding="utf-8") as log:
        done = subprocess.run(
            container.command(words_of(rest)), env=container.variables(), stdout=log, stderr=log, check=False
        )
    for place in reversed(made):
        place.rmdir() if place.is_dir() else place.unlink()
    if done.returncode != 0:
        raise NotBuilt(f"RUN {rest} ended with {done.returncode}; what it said is in {bench.log}")


def _made_for(path: Path, root: Path) -> list[Path]:
    """Make the place where something is mounted; each file and folder that was not there, outermost first."""
    place = inside(root, str(path))
    made = [one for one in (*reversed(place.parents), place) if not os.path.lexists(one)]
    place.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        place.mkdir(exist_ok=True)
    else:
        place.touch()
    return made


def _take(words: list[str], image: Image, bench: Bench) -> None:
    """Copy files of the context, or of another image, as root's."""
    options = [word for word in words if word.startswith("--")]
    *sources, target = [word for word in words if not word.startswith("--")]
    if any(not option.startswith("--from=") for option in options):
        raise NotBuilt(f"nobody here follows COPY {' '.join(options)}")
    source = bench.built[options[0].partition("=")[2]].root if options else bench.context
    into = inside(image.root, str(Path(image.folder) / target))
    for name in sources:
        path = inside(source, name)
        _copy(path, into / path.name if path.is_file() and target.endswith("/") else into)


def _copy(source: Path, target: Path, ignore: Callable[[str, list[str]], set[str]] | None = None) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=ignore)
    else:
        target = target / source.name if target.is_dir() else target
        shutil.copy(source, target)
