"""The same question under the same versions is the same answer, whole or in part, explained where asked."""

from dataclasses import fields, replace
from decimal import Decimal
from typing import Any

import pytest

from service.answers.estimates import Answer, FlopAnswer, GpuHoursAnswer, MemoryAnswer, Versions
from service.catalogue import Catalogue
from service.estimator import FORMULAS_VERSION
from service.features.estimates import answers
from service.features.estimates.answers import answer, part
from service.features.estimates.metrics import metric_named
from service.validation.questions import read_question
from service.validation.reading import DIGEST_CHARACTERS, to_bytes, to_wire
from tests.estimator.explained import READ

BODY: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "recipe": {"sequence_length": 8192, "global_batch": 128, "training_tokens": 15e12},
    "layout": {"tensor": 2},
    "cluster": {"gpu": "h100", "gpus": 8},
    "price": {"usd_per_gpu_hour": 2.5},
}


def whole(catalogue: Catalogue, *, explain: bool = False, **changes: Any) -> Answer:
    return answer(read_question({**BODY, **changes}, catalogue), catalogue, explain=explain)


def test_the_same_question_is_the_same_bytes(catalogue: Catalogue) -> None:
    assert to_bytes(whole(catalogue)) == to_bytes(whole(catalogue))


def test_the_id_is_of_the_resolved_question(catalogue: Catalogue) -> None:
    first = whole(catalogue)
    assert first.id.startswith("est_")
    assert len(first.id) == len("est_") + DIGEST_CHARACTERS
    spelled_out = whole(catalogue, cluster={"gpu": "h100-sxm5-80gb", "gpus": 8}, layout={"tensor": 2, "data": 4})
    assert spelled_out.id == first.id
    assert whole(catalogue, layout={"tensor": 4}).id != first.id
    assert whole(catalogue, price=None).id != first.id


def test_the_id_is_of_the_versions_too(catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    first = whole(catalogue)
    assert first.versions == Versions(formulas=FORMULAS_VERSION, catalogue=catalogue.revision, calibration=None)
    assert whole(replace(catalogue, revision="another")).id != first.id
    monkeypatch.setattr(answers, "FORMULAS_VERSION", "another")
    assert whole(catalogue).id != first.id


def test_assumptions_of_reading_and_of_estimating_stand_together(catalogue: Catalogue) -> None:
    said = whole(catalogue).assumptions
    assert any("h100-sxm5-80gb" in line for line in said)
    assert set(said) > set(whole(catalogue, cluster={"gpu": "h100-sxm5-80gb", "gpus": 8}).assumptions)


@pytest.mark.parametrize("kind", [MemoryAnswer, FlopAnswer, GpuHoursAnswer])
def test_a_part_is_the_whole_with_fields_left_out(catalogue: Catalogue, kind: Any) -> None:
    everything = whole(catalogue, explain=True)
    some = part(kind, everything)
    kept = to_wire(replace(some, explain=None))
    assert kept.items() <= to_wire(replace(everything, explain=None)).items()
    assert {"id", "resolved", "assumptions", "warnings", "versions"} < kept.keys()
    assert everything.explain is not None
    assert some.explain is not None
    assert some.explain.items() < everything.explain.items()
    inputs = {one.ref for each in some.explain.values() for one in each.shown_inputs if one.ref}
    assert inputs <= some.explain.keys()
    assert all(path in inputs or path.split(".")[0] in kept for path in some.explain)


def test_together_the_parts_are_the_whole(catalogue: Catalogue) -> None:
    everything = whole(catalogue, explain=True)
    kinds: list[Any] = [MemoryAnswer, FlopAnswer, GpuHoursAnswer]
    parts = [part(kind, everything) for kind in kinds]
    assert {f.name for one in parts for f in fields(one)} == {f.name for f in fields(everything)}
    assert everything.explain is not None
    assert {path for one in parts for path in one.explain or ()} == everything.explain.keys()


def test_explanations_come_only_where_asked(catalogue: Catalogue) -> None:
    assert whole(catalogue).explain is None
    assert whole(catalogue, explain=True).id == whole(catalogue).id


@pytest.mark.parametrize("layout", [{"tensor": 2}, {"pipeline": 4}])
def test_an_explanation_stands_under_the_name_that_a_cell_gives_its_number(
    catalogue: Catalogue, layout: dict[str, int]
) -> None:
    everything = whole(catalogue, explain=True, layout=layout)
    assert everything.explain is not None
    assert {"flop.conventions.6n", "memory.stages.0.lines.weights.bytes"} <= everything.explain.keys()
    for path, explanation in everything.explain.items():
        assert explanation.path == path
        assert explanation.source, path
        assert explanation.inputs, path
        if not path.startswith(READ):
            assert explanation.value == pytest.approx(metric_named(path).value_in(everything), rel=1e-12), path
            assert explanation.equation, path


def test_facts_are_explained_by_their_rows(catalogue: Catalogue) -> None:
    price = {"provider": "aws", "region": "us-east-1", "price_model": "on-demand"}
    explain = whole(catalogue, explain=True, price=price).explain or {}
    first = {path: one.references[0] for path, one in explain.items() if path.startswith("resolved.")}
    rows = {path: one for path, one in first.items() if one.kind == "catalogue"}
    gpu, paid = rows["resolved.gpu.board_watts"], rows["resolved.price.usd_per_gpu_hour"]
    assert gpu.text.startswith("gpu h100-sxm5-80gb of the catalogue, as of 20")
    assert paid.text.startswith("price aws")
    assert "as of 20" in paid.text
    assert rows["resolved.model.vocab_size"].text.startswith("model llama-3.1-8b of the catalogue")
    assert all(one.url for one in rows.values())


def test_an_exact_count_is_told_to_the_unit(catalogue: Catalogue) -> None:
    everything = whole(catalogue, explain=True)
    assert everything.explain is not None
    exact = everything.explain["flop.per_step_flop"].exact
    assert Decimal(exact) == everything.flop.per_step_flop
    assert everything.flop.per_step_flop > 2**53
    assert everything.explain["parameters.total"].exact == str(everything.parameters.total)


def test_what_was_not_asked_is_null_and_said(catalogue: Catalogue) -> None:
    untold = whole(catalogue, recipe={"sequence_length": 8192})
    assert untold.totals is None
    assert any("training_tokens" in warning for warning in untold.warnings)
    unpriced = whole(catalogue, price=None)
    assert unpriced.totals is not None
    assert unpriced.totals.cost_usd is None
    assert any("price" in warning for warning in unpriced.warnings)
