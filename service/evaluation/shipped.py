"""The accuracy on the shipped measurements, as the file that the package ships, or computed where that is stale."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from service.answers.accuracy import Accuracy, AccuracyPoint
from service.calibration.steps import rounded
from service.calibration.tables import MeasuredRow, shipped_rows
from service.catalogue import shipped_catalogue
from service.client.reading import from_json
from service.estimator import FORMULAS_VERSION
from service.evaluation.accuracy import ScoredRows, scored_rows
from service.evaluation.scoring import Evaluation, evaluate_row, evaluate_rows
from service.source_tree import write_generated
from service.validation.reading import to_bytes

FILE = Path(__file__).with_name("accuracy.json")
"""Written by `traincost write-accuracy`; a test computes it again."""

FOLDERS = {"service.calibration": "published", "service.evaluation": "."}
"""Packages and their folders of tables from which the accuracy follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedAccuracy:
    """The accuracy on the shipped measurements, with the points behind its held-out scores, and what it rests on."""

    formulas: str
    catalogue: str
    tables: str
    """Digest of the tables of measurements and of how they are read."""
    checks: Mapping[str, float]
    """Predictions of one row of each source and class, by quantity and name: each is predicted again when the file is
    read, and the file is stale where one differs."""
    accuracy: Accuracy
    points: tuple[AccuracyPoint, ...]

    @property
    def is_current(self) -> bool:
        """Whether the formulas, the catalogue and the tables of this process give these figures."""
        versions = (FORMULAS_VERSION, shipped_catalogue().revision, digest_of_tables())
        if (self.formulas, self.catalogue, self.tables) != versions:
            return False
        names = {name.partition(" ")[2] for name in self.checks}
        rows = [row for row in _rows() if row.text("id") in names]
        return _values([one for row in rows for one in evaluate_row(row, shipped_catalogue())]) == self.checks


def digest_of_tables() -> str:
    """Digest of every table of measurements, and of every table of how they are read."""
    digest = sha256()
    for package, folder in FOLDERS.items():
        for file in sorted(files(package).joinpath(folder).iterdir(), key=lambda one: one.name):
            if file.name.endswith((".csv", ".toml")):
                digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def _rows() -> tuple[MeasuredRow, ...]:
    return (*shipped_rows(), *shipped_rows("throughput"))


def _values(evaluations: Sequence[Evaluation]) -> dict[str, float]:
    """Predictions by quantity and row, with six digits."""
    return rounded(
        {f"{one.quantity} {one.row.text('id')}": one.interval.value for one in evaluations if one.interval is not None}
    )


def computed() -> ShippedAccuracy:
    """The accuracy on the shipped measurements, computed anew."""
    evaluations = evaluate_rows(_rows(), shipped_catalogue())
    scored = scored_rows(evaluations, shipped_catalogue(), with_runs=True)
    first: dict[tuple[str, ...], str] = {}
    for one in evaluations:
        if one.interval is not None:
            first.setdefault((one.quantity, one.row.text("source_key"), one.figure_class), one.row.text("id"))
    sampled = [one for one in evaluations if one.row.text("id") in first.values()]
    return ShippedAccuracy(
        formulas=FORMULAS_VERSION,
        catalogue=shipped_catalogue().revision,
        tables=digest_of_tables(),
        checks=_values(sampled),
        accuracy=scored.answer,
        points=scored.points,
    )


@cache
def _shipped() -> ScoredRows:
    """What the file holds where it is current, else what it would hold today."""
    shipped = from_json(ShippedAccuracy, json.loads(FILE.read_bytes())) if FILE.is_file() else None
    if shipped is None or not shipped.is_current:
        shipped = computed()
    return ScoredRows(shipped.accuracy, shipped.points)


def shipped_accuracy() -> Accuracy:
    """Accuracy on the shipped measurements."""
    return _shipped().answer


def shipped_points() -> tuple[AccuracyPoint, ...]:
    """Every shipped figure beside its held-out prediction."""
    return _shipped().points


def shipped_accuracy_json() -> bytes:
    """Accuracy on the shipped measurements as JSON."""
    return to_bytes(shipped_accuracy())


def file_of(accuracy: ShippedAccuracy) -> bytes:
    """The file: a group or a point a line, so that versions of it can be compared."""
    return to_bytes(accuracy).replace(b"},{", b"},\n{") + b"\n"


def write_shipped() -> tuple[Path, Accuracy]:
    """Compute the accuracy on the shipped measurements anew and write it into the package."""
    fresh = computed()
    return write_generated(FILE, lambda: file_of(fresh)), fresh.accuracy
