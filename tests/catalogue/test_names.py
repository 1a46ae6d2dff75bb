"""Does a name mean one row, however it is spelled, and does an unknown one lead to the nearest?"""

import pytest

from service.catalogue import UnsoundFact
from service.catalogue.indexes import normal
from service.errors import UnknownName
from tests.catalogue.shapes import catalogue, gpu, model

HOSTILE = "<script>alert(1)</script>"


@pytest.mark.parametrize(
    "spelled", ["big-model-7b", "Big-Model-7B", "BIG MODEL 7b", "big_model_7b", "bigmodel-7b", "bigmodel7b", "org/Big"]
)
def test_spelling_does_not_matter(spelled: str) -> None:
    found = catalogue(model("big-model-7b", "org/big")).find_model(spelled)
    assert (found.row.slug, found.assumption) == ("big-model-7b", None)


def test_separator_between_digits_matters() -> None:
    facts = catalogue(model("llama-2-7b"), model("llama-27b"))
    assert facts.find_model("Llama 2 7B").row.slug == "llama-2-7b"
    assert facts.find_model("llama_27b").row.slug == "llama-27b"


def test_name_without_any_separator_means_the_same_unless_it_is_taken() -> None:
    assert catalogue(model("llama-2-7b")).find_model("llama27b").row.slug == "llama-2-7b"
    assert catalogue(model("llama-2-7b"), model("llama-27b")).find_model("llama27b").row.slug == "llama-27b"
    with pytest.raises(UnknownName):
        catalogue(model("llama-2-7b")).find_model("llama-27b")


def test_provider_before_a_machine_type_does_not_matter() -> None:
    assert normal("AWS p5.48xlarge") == normal("p5.48xlarge")
    assert catalogue(gpu("h100", "p5.48xlarge")).find_gpu("aws p5.48xlarge").row.slug == "h100"


def test_shared_alias_takes_its_default_and_says_so() -> None:
    facts = catalogue(gpu("h100-pcie", "H100"), gpu("h100-sxm5", "H100", default_for=("h100",)))
    found = facts.find_gpu("H100")
    assert found.row.slug == "h100-sxm5"
    assert found.assumption == "gpu h100 is taken as h100-sxm5; it could also mean h100-pcie"


def test_shared_alias_without_default_names_its_candidates() -> None:
    facts = catalogue(gpu("gaudi2", "habana.ai/gaudi"), gpu("gaudi3", "habana.ai/gaudi"))
    with pytest.raises(UnknownName) as refused:
        facts.find_gpu("habana.ai/gaudi", "cluster.gpu")
    (problem,) = refused.value.problems
    assert (problem.field, problem.code) == ("cluster.gpu", "unknown_gpu")
    assert "gaudi2 or gaudi3" in problem.fix


def test_slug_beats_nothing_it_is_alone() -> None:
    with pytest.raises(UnsoundFact, match="slug of another"):
        catalogue(gpu("h100"), gpu("h100-pcie", "H-100"))


def test_two_rows_of_one_slug_do_not_load() -> None:
    with pytest.raises(UnsoundFact, match="two rows"):
        catalogue(model("twin"), model("twin"))


def test_two_defaults_of_one_alias_do_not_load() -> None:
    with pytest.raises(UnsoundFact, match="both claim"):
        catalogue(gpu("one", "x", default_for=("x",)), gpu("two", "x", default_for=("X",)))


@pytest.mark.parametrize(
    ("kind", "slug"), [("model", "llama-3.1-8b"), ("gpu", "h100-sxm5-80gb"), ("cluster", "dgx-h100")]
)
def test_unknown_name_leads_to_the_nearest(kind: str, slug: str) -> None:
    from service.catalogue import shipped_catalogue

    with pytest.raises(UnknownName) as refused:
        getattr(shipped_catalogue(), f"find_{kind}")(slug + "x", f"some.{kind}")
    (problem,) = refused.value.problems
    assert (problem.field, problem.code) == (f"some.{kind}", f"unknown_{kind}")
    assert slug in problem.fix


@pytest.mark.parametrize(
    "name", [HOSTILE, "", "\ud800", "x" * 100_000, "-" * 1000], ids=["script", "empty", "surrogate", "long", "dashes"]
)
def test_unknown_name_is_not_repeated(name: str) -> None:
    from service.catalogue import shipped_catalogue

    for find in (shipped_catalogue().find_model, shipped_catalogue().find_gpu, shipped_catalogue().find_cluster):
        with pytest.raises(UnknownName) as refused:
            find(name)
        text = repr(refused.value.problems)
        assert len(text) < 500
        assert "script" not in text
        assert "xxx" not in text
