"""Rows of tables of facts: what is wrong with one is refused with its table, row and field."""

from typing import Any

import pytest

from service.estimator.model.build import MIXERS
from service.estimator.software.precision import Optimizer
from service.estimator.software.stacks import IMPLEMENTATIONS, STACKS, Implementation, Stack
from service.estimator.tables import parsed

LION = {"meaning": "one moment", "first_moment": "full", "second_moment": "none", "source": "arXiv:2302.06675"}
LOCAL: dict[str, Any] = {
    "meaning": "own layers",
    "cross_entropies": ["eager"],
    "overlap": {"source": "docs"},
    "source": "docs",
}


@pytest.mark.parametrize(
    ("kind", "row", "message"),
    [
        (Optimizer, LION | {"third_moment": "full"}, r"^one\.third_moment: no field of Optimizer$"),
        (Optimizer, {name: text for name, text in LION.items() if name != "source"}, r"^one\.source: missing"),
        (Optimizer, LION | {"first_moment": "half"}, r"^one\.first_moment: 'half' is not typing.Literal\['full', "),
        (Optimizer, LION | {"needs_whole_matrices": 1}, r"^one\.needs_whole_matrices: 1 is not bool$"),
        (Optimizer, LION | {"moment_bytes": "1"}, r"^one\.moment_bytes: '1' is not float$"),
        (Optimizer, LION | {"scale_bytes": True}, r"^one\.scale_bytes: True is not float$"),
        (Implementation, LOCAL | {"cross_entropies": "eager"}, r"^one\.cross_entropies: 'eager' is not tuple"),
        (Implementation, LOCAL | {"cross_entropies": ["eager", "lazy"]}, r"^one\.cross_entropies\[1\]: 'lazy' is not"),
        (Implementation, LOCAL | {"overlap": {}}, r"^one\.overlap\.source: missing in Overlap$"),
        (Implementation, LOCAL | {"overlap": "none"}, r"^one\.overlap: 'none' is not Overlap$"),
        (Stack, {"zero_stages": [True], "meaning": "m", "precisions": [], "source": "s"}, r"^one\.zero_stages\[0\]: "),
        (dict[str, Optimizer], {"lion": {}}, r"^one\.lion\.first_moment: missing in Optimizer$"),
    ],
)
def test_wrong_rows_are_refused_with_their_place(kind: Any, row: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parsed(kind, row, "one")


def test_rows_have_the_defaults_of_their_dataclass() -> None:
    row = parsed(Optimizer, LION, "one")
    assert row == Optimizer(meaning="one moment", first_moment="full", second_moment="none", source="arXiv:2302.06675")


def test_every_stack_has_an_implementation_and_every_recurrence_a_stack() -> None:
    assert list(STACKS) == list(IMPLEMENTATIONS)
    recurrences = {name for name, mixer in MIXERS.items() if mixer.carries_state}
    for name in ("fsdp1", "deepspeed", "transformers"):
        assert set(STACKS[name].recurrences) == recurrences, name
