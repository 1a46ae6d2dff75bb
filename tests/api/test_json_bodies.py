"""One meaning for every byte: hostile JSON is refused before anything else looks at it."""

import json

import pytest

from service.errors import NotJson, Problem, Refused
from service.validation.json_text import MAXIMUM_DEPTH, MAXIMUM_ITEMS, MAXIMUM_VALUES, parse


def problems_of(body: str | bytes) -> tuple[Problem, ...]:
    with pytest.raises(Refused) as refused:
        parse(body if isinstance(body, bytes) else body.encode())
    return refused.value.problems


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ('{"recipe": {"micro_batch": NaN}}', "not_finite", "recipe.micro_batch"),
        ('{"recipe": {"micro_batch": Infinity}}', "not_finite", "recipe.micro_batch"),
        ('{"recipe": {"micro_batch": -Infinity}}', "not_finite", "recipe.micro_batch"),
        ('{"recipe": {"training_tokens": 1e400}}', "not_finite", "recipe.training_tokens"),
        ('{"cluster": {"gpus": ' + "9" * 5000 + "}}", "too_many_digits", "cluster.gpus"),
        ('{"cluster": {"gpus": ' + "9" * 4000 + ".5}}", "too_many_digits", "cluster.gpus"),
        ('{"model": "\\ud800"}', "not_text", "model"),
        ('{"model": "a\\u0000b"}', "not_text", "model"),
        ('{"recipe": {"\\udfff": 1}}', "not_text", "recipe"),
        ('{"layout": {"tensor": 1, "tensor": 2}}', "duplicate_key", "layout"),
        ('{"layout": {"stage_layers": [1, NaN]}}', "not_finite", "layout.stage_layers"),
    ],
)
def test_values_that_no_field_can_hold_are_refused_with_their_place(body: str, code: str, field: str) -> None:
    assert [(problem.code, problem.field) for problem in problems_of(body)] == [(code, field)]


def test_the_place_of_a_fault_names_plain_fields_only() -> None:
    (problem,) = problems_of('{"unknown": {"<b>": {"" : {"tensor": NaN}}}}')
    assert problem.field == "unknown.tensor"


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"{} x", b"'a'", b"{'a': 1}", b'{"a": 01}', b'{"a": +1}', b'{"a": .5}', b'{"a": nan}',
        b'{"a": 0x10}', b"// comment\n{}", b"[1,]", b"\xef\xbb\xbf{}", '{"a": 1}'.encode("utf-16"), b'{"a": "\xe9"}',
        b'{"a": "\n"}',
    ],
)  # fmt: skip
def test_what_is_not_json_in_utf_8_is_not_read(body: bytes) -> None:
    with pytest.raises(NotJson):
        parse(body)


@pytest.mark.parametrize("depth", [MAXIMUM_DEPTH + 1, 1_000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_deep_nesting_is_refused(depth: int, opening: str, closing: str) -> None:
    innermost = "" if opening == "[" else "1"
    assert [problem.code for problem in problems_of(opening * depth + innermost + closing * depth)] == ["too_deep"]


def test_the_deepest_allowed_nesting_is_read() -> None:
    assert parse(("[" * MAXIMUM_DEPTH + '"x"' + "]" * MAXIMUM_DEPTH).encode())


@pytest.mark.parametrize(
    "body",
    [
        json.dumps([1] * (MAXIMUM_ITEMS + 1)),
        json.dumps({f"key{i}": 1 for i in range(MAXIMUM_ITEMS + 1)}),
        "[" + "[],[]," * MAXIMUM_VALUES + "1]",
    ],
    ids=["items", "keys", "values"],
)
def test_too_many_values_are_refused(body: str) -> None:
    assert {problem.code for problem in problems_of(body)} == {"too_long"}


def test_ordinary_bodies_are_read_as_they_are() -> None:
    body = {"a": [1, -2.5e-3, True, None, "äöü 😀 \t"], "b": {"c": {}}, "d": 15e12, "e": -0.0}
    assert parse(json.dumps(body).encode()) == body
    assert parse(json.dumps(body, ensure_ascii=False).encode()) == body
