"""The facts that the service ships, and one flat question with its answer, each made once."""

import pytest

from service.answers.estimates import Answer
from service.catalogue import Catalogue, shipped_catalogue
from service.features.estimates.answers import answer
from service.validation.flat import body_of_flat
from service.validation.questions import read_question

FLAT = [
    ("model", "llama-3.1-8b"), ("gpu", "h100-sxm5-80gb"), ("gpus", "64"), ("tp", "2"), ("seq", "8192"),
    ("gbs", "512"), ("training_tokens", "15e12"), ("usd_per_gpu_hour", "2.5"),
]  # fmt: skip


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    return shipped_catalogue()


@pytest.fixture
def flat() -> dict[str, str]:
    return dict(FLAT)


@pytest.fixture(scope="session")
def answered(catalogue: Catalogue) -> Answer:
    return answer(read_question(body_of_flat(FLAT), catalogue), catalogue)
