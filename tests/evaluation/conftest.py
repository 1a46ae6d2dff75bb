"""What becomes of the shipped rows, and the answer, each made once."""

import pytest

from service.answers.accuracy import Accuracy
from service.calibration.tables import shipped_rows
from service.catalogue import shipped_catalogue
from service.evaluation.accuracy import scored_rows
from service.evaluation.scoring import Evaluation, evaluate_rows


@pytest.fixture(scope="session")
def evaluations() -> tuple[Evaluation, ...]:
    return evaluate_rows(shipped_rows(), shipped_catalogue())


@pytest.fixture(scope="session")
def steps() -> tuple[Evaluation, ...]:
    return evaluate_rows(shipped_rows("throughput"), shipped_catalogue())


@pytest.fixture(scope="session")
def found(evaluations: tuple[Evaluation, ...], steps: tuple[Evaluation, ...]) -> Accuracy:
    return scored_rows((*evaluations, *steps), shipped_catalogue(), with_runs=True).answer
