"""Descriptions of fields are those that pydantic itself would read."""

import sys

import pytest
from pydantic._internal import _docs_extraction, _fields

from service.answers.estimates import Answer, Versions
from service.answers.plans import PlanAnswer
from service.estimator.question import Cluster, Gpu, Layout, Model, OwnedPrice, Price, Recipe, Recompute
from service.validation import descriptions_of
from service.validation.question_parts import CardPrice, CataloguePrice, Nodes

KINDS = (
    Answer, CardPrice, CataloguePrice, Cluster, Gpu, Layout, Model, Nodes, OwnedPrice, PlanAnswer, Price, Recipe,
    Recompute, Versions,
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_descriptions_are_those_that_pydantic_reads(kind: type) -> None:
    assert descriptions_of(kind)
    expected: dict[str, str] = {}
    for one in reversed(kind.__mro__[:-1]):
        expected |= _docs_extraction.extract_docstrings_from_cls(one, use_inspect=True)
    assert descriptions_of(kind) == expected


def test_a_class_without_a_source_has_no_descriptions() -> None:
    assert descriptions_of(int) == {}
    assert descriptions_of(type("Made", (), {})) == {}


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="pydantic is fast there by itself")
def test_pydantic_reads_descriptions_from_there() -> None:
    assert vars(_fields)["extract_docstrings_from_cls"] is descriptions_of
