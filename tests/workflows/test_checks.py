"""A check denies what runs out of memory, warns of what may or may exceed a limit, and says why in one line."""

from typing import Any

import pytest

from service.catalogue import Catalogue
from service.errors import Refused
from service.workflows.checks import Check, check
from service.workflows.estimates import answer
from service.workflows.questions import read_question

Body = dict[str, Any]


@pytest.fixture
def body() -> Body:
    """One DGX H100, so many layers of an 8 B model that it fits with room to spare."""
    return {
        "model": "llama-3.1-8b",
        "recipe": {"sequence_length": 8192, "training_tokens": 1e12},
        "layout": {"tensor": 8},
        "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 8},
        "price": {"usd_per_gpu_hour": 2.5},
    }


def refusal(body: Body, catalogue: Catalogue) -> list[tuple[str, str]]:
    with pytest.raises(Refused) as refused:
        check(body, catalogue)
    return [(problem.field, problem.code) for problem in refused.value.problems]


def one_line(found: Check) -> bool:
    return 0 < len(found.reason) <= 255 and found.reason.isprintable()


def test_what_fits_is_ok_and_tells_what_it_takes(body: Body, catalogue: Catalogue) -> None:
    found = check(body, catalogue)
    whole = answer(read_question(body, catalogue), catalogue)
    assert whole.totals is not None
    assert (found.verdict, found.fits) == ("ok", True)
    assert (found.id, found.versions) == (whole.id, whole.versions)
    assert (found.gpu_hours, found.cost_usd) == (whole.totals.gpu_hours, whole.totals.cost_usd)
    assert found.device_peak_bytes == whole.memory.device_peak_bytes
    assert found.reason.startswith("fits: ")
    assert "GPU-hours" in found.reason
    assert one_line(found)


def test_the_time_limit_is_the_upper_end_in_whole_minutes(body: Body, catalogue: Catalogue) -> None:
    found = check(body, catalogue)
    assert found.gpu_hours is not None
    assert found.time_limit_seconds is not None
    assert found.time_limit_seconds % 60 == 0
    assert 0 <= found.time_limit_seconds - found.gpu_hours.high / 8 * 3600 < 60 + 1e-6


def test_what_does_not_fit_is_denied_with_advice(body: Body, catalogue: Catalogue) -> None:
    found = check({**body, "model": "llama-3.1-70b"}, catalogue)
    whole = answer(read_question({**body, "model": "llama-3.1-70b"}, catalogue), catalogue)
    assert (found.verdict, found.fits) == ("deny", False)
    assert found.reason.startswith("out of memory: ")
    assert whole.memory.suggestions[0] in found.reason
    assert one_line(found)


def test_the_verdict_follows_the_probability_of_running_out_of_memory(body: Body, catalogue: Catalogue) -> None:
    seen = set()
    for tokens in range(12288, 20480, 1024):
        body["recipe"] = {"sequence_length": tokens}
        body["layout"] = {"tensor": 2}
        found = check(body, catalogue)
        risk = found.oom_probability_fraction
        assert found.verdict == ("ok" if risk < 0.05 else "warn" if risk <= 0.5 else "deny")
        assert one_line(found)
        seen.add(found.verdict)
    assert seen == {"ok", "warn", "deny"}


@pytest.mark.parametrize("name", ["days", "cost_usd"])
def test_a_limit_below_the_upper_end_is_warned_of(name: str, body: Body, catalogue: Catalogue) -> None:
    whole = answer(read_question(body, catalogue), catalogue)
    assert whole.totals is not None
    predicted = getattr(whole.totals, name)
    for limit, verdict, said in [
        (predicted.high, "ok", "fits"),
        (predicted.value, "warn", "may exceed"),
        (predicted.low / 2, "warn", "even at its low end"),
    ]:
        found = check({**body, "limits": {name: limit}}, catalogue)
        assert (found.verdict, found.fits) == (verdict, True)
        assert said in found.reason
        assert one_line(found)


def test_a_limit_does_not_excuse_what_runs_out_of_memory(body: Body, catalogue: Catalogue) -> None:
    found = check({**body, "model": "llama-3.1-70b", "limits": {"days": 1}}, catalogue)
    assert found.verdict == "deny"
    assert found.reason.startswith("out of memory: ")


def test_without_tokens_or_price_nothing_is_invented(body: Body, catalogue: Catalogue) -> None:
    del body["price"]
    assert check(body, catalogue).cost_usd is None
    body["recipe"] = {"sequence_length": 8192}
    found = check(body, catalogue)
    assert (found.gpu_hours, found.cost_usd, found.time_limit_seconds) == (None, None, None)
    assert "GPU-hours" not in found.reason


def test_a_limit_that_cannot_be_judged_is_refused(body: Body, catalogue: Catalogue) -> None:
    del body["price"]
    assert refusal({**body, "limits": {"cost_usd": 1.0}}, catalogue) == [("limits.cost_usd", "not_known")]
    body["recipe"] = {"sequence_length": 8192}
    assert refusal({**body, "limits": {"days": 1.0}}, catalogue) == [("limits.days", "not_known")]
    assert check({**body, "limits": None}, catalogue).verdict == "ok"


def test_an_unknown_field_is_told_of_the_limits(body: Body, catalogue: Catalogue) -> None:
    with pytest.raises(Refused) as refused:
        check({**body, "deadline_hours": 3}, catalogue)
    (problem,) = refused.value.problems
    assert "limits.cost_usd, limits.days" in problem.fix


def test_everything_wrong_is_named_at_once(body: Body, catalogue: Catalogue) -> None:
    del body["cluster"]
    problems = refusal({**body, "limits": {"days": 0, "euros": 1}}, catalogue)
    assert problems == [("cluster", "required"), ("limits", "unknown_field"), ("limits.days", "out_of_range")]
    assert refusal({**body, "limits": []}, catalogue)[1:] == [("limits", "not_an_object")]
