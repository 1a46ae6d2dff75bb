"""Declared bounds of catalogue rows are the enforced ones, with the usual error."""

from dataclasses import fields, replace
from typing import Any

import pytest

from service.catalogue.bounds import Fault, faults_of, rule_of
from service.errors import Refused
from service.estimator import Cluster, Model
from service.estimator.samples import H100
from service.validation.reading import fields_of, read_spec

TINY = Model(vocab_size=8, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4)
BOX = Cluster(gpu="h100-sxm5-80gb", gpus=8)
NOUNS = (TINY, BOX, H100)

ANYTHING: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 3, 4096, 1 << 21, 1 << 27, 10**18, -0.5, 0.0, 0.5, 1.0, 64.5, 1e300),
    *("", "4", "true", "full_attention", "x" * 201, (), {}),
    *((name,) * many for name in ("full_attention", "dense", "fulll_attention", 1, None) for many in (1, 2049)),
    ("full_attention", "sliding_attention", "no such thing"),
)


def _refusals(noun: Any, name: str, value: Any) -> set[tuple[str, str, str]]:
    """Path, code and fix, without its guess, of what the border says about one field of a request."""
    try:
        read_spec(type(noun), {**fields_of(noun), name: value}, "")
    except Refused as refused:
        return {(one.field, one.code, one.fix.rpartition("? if not, ")[2]) for one in refused.problems}
    return set()


def _said(name: str, fault: Fault, value: Any) -> tuple[str, str, str]:
    judged = value if fault.item is None else value[fault.item]
    path = name if fault.item is None else f"{name}.{fault.item}"
    quotes = ", without quotes" if isinstance(judged, str) and "number" in fault.code else ""
    return (path, fault.code, f"give {fault.expected}{quotes}")


@pytest.mark.parametrize(
    ("noun", "name"), [pytest.param(noun, f.name, id=f.name) for noun in NOUNS for f in fields(noun)]
)
def test_every_field_is_judged_as_in_a_request(noun: Any, name: str) -> None:
    for value in ANYTHING:
        fault = rule_of(type(noun), name).fault(value)
        refused = _refusals(noun, name, value)
        assert bool(fault) == bool(refused), value
        if fault:
            assert _said(name, fault, value) in refused, value


@pytest.mark.parametrize("noun", NOUNS)
def test_sound_noun_has_no_faults(noun: Any) -> None:
    assert faults_of(noun) == {}


def test_fault_is_found_in_its_field_and_said() -> None:
    (name, fault), *others = faults_of(replace(TINY, hidden_size=0)).items()
    assert not others
    assert fault.message(name) == "hidden_size is not a whole number from 1 to 16777216"
    (fault,) = faults_of(replace(TINY, layer_types=("full_attention", "linear"))).values()  # type: ignore[arg-type]
    assert (fault.code, fault.item) == ("not_a_choice", 1)
    assert fault.message("layer_types").startswith("an item of layer_types is not one of full_attention, ")


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_what_json_cannot_spell_is_no_number(value: float) -> None:
    assert {name: fault.code for name, fault in faults_of(replace(H100, board_watts=value)).items()} == {
        "board_watts": "not_a_number"
    }
    assert rule_of(Model, "hidden_size").fault(value) == Fault(
        "not_a_whole_number", "a whole number from 1 to 16777216"
    )
