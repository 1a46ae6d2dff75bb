"""What becomes of the shipped rows, and the answer, each made once."""

import pytest

from service.calibration.tables import shipped_rows
from service.catalogue import shipped_catalogue
from service.evaluation.accuracy import accuracy_of_judged
from service.evaluation.answers import Accuracy
from service.evaluation.judging import Judged, judge_all


@pytest.fixture(scope="session")
def judged() -> tuple[Judged, ...]:
    return judge_all(shipped_rows(), shipped_catalogue())


@pytest.fixture(scope="session")
def steps() -> tuple[Judged, ...]:
    return judge_all(shipped_rows("throughput"), shipped_catalogue())


@pytest.fixture(scope="session")
def found(judged: tuple[Judged, ...], steps: tuple[Judged, ...]) -> Accuracy:
    return accuracy_of_judged((*judged, *steps), shipped_catalogue())
