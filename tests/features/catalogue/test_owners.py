"""Callers see and change their own, and nothing that one owner does changes what another is answered."""

import re
from typing import Any

import pytest

from tests.api.asking import CHOSEN, QUESTION
from tests.api.authorization import FACTS, LISTS
from tests.api.callers import Service, run
from tests.api.own_bodies import OWN, Own


@pytest.mark.parametrize("plural", LISTS)
def test_a_list_shows_ones_own_and_an_admin_all(service: Service, plural: str) -> None:
    made = service.object(plural, "listed")
    for caller, sees in (("a", True), ("reader", True), ("b", False), ("admin", True)):
        items = service.listed(f"/v1/{plural}", caller)
        assert (made in [item["id"] for item in items]) is sees, caller
        if not sees:
            assert all(item["owner"] == "b" or item.get("promoted_at") for item in items)
        text = service.by(caller, "GET", f"/v1/{plural}.csv").text
        assert (made in text) is sees, caller


def test_a_custom_row_is_seen_by_its_owner_alone(service: Service) -> None:
    for plural in FACTS:
        key = service.object(plural, "private")
        for caller, status in (("a", 200), ("reader", 200), ("b", 404), ("admin", 200)):
            assert service.by(caller, "GET", f"/v1/{plural}/{key}").status_code == status, (plural, caller)
            assert service.by(caller, "GET", f"/v1/{plural}/{key}?revision=1").status_code == (
                404 if caller == "b" else 200
            )
            text = service.by(caller, "GET", f"/v1/{plural}.csv").text
            assert (("matrix private" if plural == "prices" else "matrix-private") in text) is (
                caller in {"a", "reader"}
            ), (plural, caller)
        shown = service.by("admin", "GET", f"/v1/{plural}/{key}?owner=a").json()
        assert (shown["owner"], shown["scope"]) == ("a", "owner")
        assert service.by("b", "GET", f"/v1/{plural}/{key}?owner=a").status_code == 404
        assert key in service.by("admin", "GET", f"/v1/{plural}.csv?owner=a").text
        assert key not in service.by("b", "GET", f"/v1/{plural}.csv?owner=a").text


def test_a_sheet_key_reads_budgets_of_its_owner_alone(service: Service) -> None:
    other = service.made("/v1/scenarios", {"name": "b's", "question": QUESTION}, caller="b").json()["id"]
    assert service.by("anonymous", "GET", f"/v1/scenarios/{other}.xlsx?key={service.keys['sheet']}").status_code == 404
    own = service.object("scenarios", "sheet")
    assert service.by("anonymous", "GET", f"/v1/scenarios/{own}.xlsx?key={service.keys['sheet']}").status_code == 200


def test_a_stored_question_of_others_is_compared_by_nobody_else(service: Service) -> None:
    question = {**QUESTION, "price": {"usd_per_gpu_hour": 7.77}}  # which nobody else keeps
    other = service.made("/v1/scenarios", {"name": "b's own", "question": question}, caller="b").json()
    for stored in (other["id"], other["links"]["estimate"].rpartition("/")[2]):
        body = {"before": stored, "after": {**QUESTION, "price": {"usd_per_gpu_hour": 1.5}}}
        assert service.by("b", "POST", "/v1/differences", json=body).status_code == 200
        refused = service.by("a", "POST", "/v1/differences", json=body)
        assert refused.status_code == 422, (stored, refused.text[:300])
        assert (refused.status_code, [one["pointer"] for one in refused.json()["errors"]]) == (422, ["/before"])


def test_what_others_measured_is_named_by_nobody_else(service: Service) -> None:
    of_a = service.object("measurements", "named")
    for what in ("quarantine", "release"):
        body = {"ids": [of_a], **({"reason": "x"} if what == "quarantine" else {})}
        refused = service.by("b", "POST", f"/v1/measurements/{what}", json=body)
        unknown = service.by("b", "POST", f"/v1/measurements/{what}", json={**body, "ids": ["msr_none"]})
        assert refused.status_code == unknown.status_code == 422
        assert refused.json()["detail"] == unknown.json()["detail"]
        assert service.by("a", "POST", f"/v1/measurements/{what}", json=body).status_code == 200
    refused = service.by("b", "POST", "/v1/calibrations", json={**CHOSEN, "runs": ["named"]})
    assert refused.status_code == 422
    mine = service.made("/v1/measurements", run("named"), 200, caller="b").json()["ids"]
    assert of_a not in mine, "the same of two owners is kept twice"


def test_two_owners_may_give_their_rows_one_name(service: Service) -> None:
    for own in OWN:
        key = service.object(own.plural, "same")
        body = own.named("matrix same" if own.plural == "prices" else "matrix-same") | own.change
        made = service.by("b", "POST", f"/v1/{own.plural}", json=body)
        assert (made.status_code, made.json()["owner"]) == (201, "b"), made.text
        assert service.by("a", "GET", f"/v1/{own.plural}/{key}").json()["owner"] == "a"
        several = service.by("admin", "DELETE", f"/v1/{own.plural}/{key}", headers={"If-Match": "*"})
        assert (several.status_code, several.json()["errors"][0]["code"]) == (409, "several_owners")
        gone = service.by("admin", "DELETE", f"/v1/{own.plural}/{key}?owner=b", headers={"If-Match": "*"})
        assert gone.status_code == 204, gone.text
        assert service.by("b", "GET", f"/v1/{own.plural}/{key}").status_code == 404
        assert service.by("a", "GET", f"/v1/{own.plural}/{key}").status_code == 200


def test_an_admin_changes_a_row_and_its_owner_keeps_it(service: Service) -> None:
    service.object("rate-cards", "kept")
    path = "/v1/rate-cards/matrix-kept"
    for caller, status in (("admin", 200), ("b", 404), ("a", 200)):
        answer = service.by(caller, "PATCH", path, json={"note": caller}, headers={"If-Match": "*"})
        assert answer.status_code == status
    assert service.by("a", "GET", path).json()["owner"] == "a"
    answer = service.by("admin", "PATCH", path, json={"owner": "b"}, headers={"If-Match": "*"})
    assert answer.json()["errors"][0]["code"] == "not_settable"


@pytest.mark.parametrize("own", OWN, ids=[own.plural for own in OWN])
def test_an_admin_promotes_a_row_to_everyone_and_only_admins_change_it_then(service: Service, own: Own) -> None:
    slug = f"matrix{' ' if own.plural == 'prices' else '-'}promoted"
    key, path = service.object(own.plural, "promoted"), f"/v1/{own.plural}/{service.object(own.plural, 'promoted')}"
    match = {"If-Match": "*"}
    refused = service.by("a", "PATCH", path, json={"scope": "everyone"}, headers=match)
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (403, "admins_only")
    refused = service.by("a", "POST", f"/v1/{own.plural}", json=own.named(f"{slug}-2") | {"scope": "everyone"})
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (403, "admins_only")
    promoted = service.by("admin", "PATCH", path, json={"scope": "everyone"}, headers=match)
    assert (promoted.status_code, promoted.json()["owner"]) == (200, "a"), promoted.text
    assert service.by("b", "GET", path).json() == promoted.json() == service.by("a", "GET", path).json()
    for caller in ("a", "b"):
        for method, body in (("PATCH", {"note": "poisoned"}), ("PUT", own.named(slug)), ("DELETE", None)):
            request = {"headers": match} if body is None else {"headers": match, "json": body}
            refused = service.by(caller, method, path, **request)
            assert (refused.status_code, refused.json()["errors"][0]["code"]) == (403, "admins_only"), caller
        taken = service.by(caller, "POST", f"/v1/{own.plural}", json=own.named(slug))
        assert (taken.status_code, taken.json()["errors"][0]["code"]) == (409, "name_taken")
    back = service.by("admin", "PATCH", path, json={"scope": "owner"}, headers=match)
    assert (back.status_code, back.json()["scope"]) == (200, "owner"), back.text
    assert service.by("b", "GET", path).status_code == 404
    assert service.by("a", "GET", path).status_code == 200, key


def test_a_mark_as_verified_is_not_the_writers(service: Service) -> None:
    for own in OWN:
        slug = f"matrix{' ' if own.plural == 'prices' else '-'}verified"
        for verified in ("yes", "partly"):
            refused = service.by("a", "POST", f"/v1/{own.plural}", json=own.named(slug) | {"verified": verified})
            assert (refused.status_code, refused.json()["errors"][0]["code"]) == (403, "admins_only"), own.plural
        path = f"/v1/{own.plural}/{service.object(own.plural, 'verified')}"
        marked = service.by("admin", "PATCH", path, json={"verified": "yes"}, headers={"If-Match": "*"})
        assert marked.json()["verified"] == "yes"
        changed = service.by("a", "PATCH", path, json=own.change, headers={"If-Match": "*"})
        assert (changed.status_code, changed.json()["verified"]) == (200, "no"), "it was said of other numbers"
    text = "provider,gpu,usd_per_gpu_hour,as_of,verified\r\nimported,h100,1,2026,yes\r\n"
    answer = service.by("a", "POST", "/v1/prices/import", content=text, headers={"Content-Type": "text/csv"})
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "admins_only")


@pytest.mark.parametrize(
    ("plural", "slug"),
    [
        ("gpus", "h-100"),
        ("gpus", "h100-sxm5-80-gb"),
        ("models", "llama-27b"),
        ("models", "llama3.1-8-b"),
        ("clusters", "dgx-h-100"),
        ("regions", "usa"),
    ],
)
def test_no_custom_row_takes_a_name_that_a_shipped_row_answers_to(service: Service, plural: str, slug: str) -> None:
    own = next(own for own in OWN if own.plural == plural)
    spellings: dict[str, dict[str, Any]] = {
        "alias": {"slug": "matrix-alias", "aliases": [slug]},
        "slug": {"slug": slug},
    }
    spellings |= (
        {"fullwidth": {"slug": "matrix-alias", "aliases": [slug.translate(FULLWIDTH)]}} if plural != "regions" else {}
    )
    for how, names in spellings.items():
        answer = service.by("b", "POST", f"/v1/{plural}", json={**own.body, **names})
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (409, "name_taken"), (how, answer.text)


FULLWIDTH = {ordinal: ordinal + 0xFEE0 for ordinal in range(0x21, 0x7F)}


def test_a_calibration_holds_for_its_owner_until_an_admin_promotes_it(service: Service) -> None:
    of_a = service.object("calibrations", "first one")
    promoted = service.by("a", "POST", f"/v1/calibrations/{of_a}/promote")
    assert (promoted.status_code, promoted.json()["scope"]) == (200, "owner")
    assert calibration_of(service, "a") == of_a
    assert calibration_of(service, "b") is None
    assert service.by("b", "GET", f"/v1/calibrations/{of_a}").status_code == 404
    assert service.by("b", "POST", f"/v1/calibrations/{of_a}/retire").status_code == 404
    service.made("/v1/measurements", run("another of b's"), 200, caller="b")
    of_b = service.made("/v1/calibrations", {**CHOSEN, "runs": ["another of b's"]}, caller="b").json()["id"]
    refused = service.by("b", "POST", f"/v1/calibrations/{of_b}/promote", json={"scope": "everyone"})
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (403, "admins_only")
    assert service.by("b", "POST", f"/v1/calibrations/{of_b}/promote").status_code == 200
    assert (calibration_of(service, "a"), calibration_of(service, "b")) == (of_a, of_b)
    everyone = service.by("admin", "POST", f"/v1/calibrations/{of_b}/promote", json={"scope": "everyone"})
    assert (everyone.status_code, everyone.json()["scope"]) == (200, "everyone"), everyone.text
    assert [calibration_of(service, caller) for caller in ("a", "b", "admin")] == [of_a, of_b, of_b]
    assert service.by("a", "GET", f"/v1/calibrations/{of_b}").status_code == 200, "answers name it"
    refused = service.by("b", "POST", f"/v1/calibrations/{of_b}/retire")
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (403, "admins_only")
    assert service.by("a", "POST", f"/v1/calibrations/{of_a}/retire").status_code == 200
    assert calibration_of(service, "a") == of_b, "what everyone has comes in the place of an own one"
    assert service.by("admin", "POST", f"/v1/calibrations/{of_b}/rollback").status_code == 200
    assert [calibration_of(service, caller) for caller in ("a", "b", "admin")] == [None, None, None]


def calibration_of(service: Service, caller: str) -> str | None:
    """The calibration that a caller's answers rest on."""
    answer = service.by(caller, "POST", "/v1/estimates", json=QUESTION)
    assert answer.status_code == 200, answer.text
    found: str | None = answer.json()["versions"]["calibration"]
    return found


def test_a_revision_of_anothers_view_is_unknown_to_others(service: Service) -> None:
    service.object("regions", "view")
    seen = service.by("a", "POST", "/v1/estimates", json=QUESTION)
    revision = seen.json()["versions"]["catalogue"]
    path = f"/v1/estimates?rev={revision}"
    assert service.by("a", "POST", path, json=QUESTION).content == seen.content
    assert service.by("admin", "POST", path, json=QUESTION).content == seen.content
    hidden, unknown = (
        service.by("b", "POST", f"/v1/estimates?rev={rev}", json=QUESTION) for rev in (revision, "0" * 12)
    )
    assert hidden.status_code == unknown.status_code == 404
    assert hidden.json()["detail"] == unknown.json()["detail"]
    summaries = {
        caller: service.by(caller, "GET", "/v1/catalogue/revisions.csv").text for caller in ("a", "b", "admin")
    }
    assert ["matrix-view" in text for text in summaries.values()] == [True, False, True]
    for one in service.listed("/v1/catalogue/revisions", "a")[:3]:
        assert service.by("a", "POST", f"/v1/estimates?rev={one['catalogue']}", json=QUESTION).status_code == 200


QUESTIONS: dict[str, Any] = {
    "by rate": QUESTION,
    "by provider": QUESTION
    | {
        "price": {"provider": "lambda", "region": "all", "price_model": "on-demand"},
        "cluster": {"gpu": "h100", "gpus": 8},
    },
}


UNPRICED = {name: value for name, value in QUESTION.items() if name != "price"}


def answers_of(service: Service, caller: str) -> dict[str, bytes]:
    """What a caller is answered on every kind of route that reads the catalogue or measurements."""
    asked: dict[str, tuple[str, str, Any]] = {
        name: ("POST", "/v1/estimates", question) for name, question in QUESTIONS.items()
    }
    every_price = {"provider": "*", "region": "*", "price_model": "*"}
    asked |= {
        "check": ("POST", "/v1/check", QUESTION),
        "batch": ("POST", "/v1/batch", {"questions": [QUESTION]}),
        "compare": ("POST", "/v1/compare", {"question": UNPRICED, "prices": [every_price]}),
        "plans": ("POST", "/v1/plans", {**QUESTION, "layout": {}}),
        "sensitivity": ("POST", "/v1/sensitivity", {"question": QUESTION, "vary": {"recipe.micro_batch": [1, 2]}}),
        "cell": ("GET", "/v1/cell/step_seconds?model=llama-3.1-8b&gpu=h100&gpus=8&sequence_length=8192", None),
        "unknown": ("POST", "/v1/estimates", QUESTION | {"model": "matrix-hostil"}),
        "revisions": ("GET", "/v1/catalogue/revisions.csv", None),
        "accuracy": ("GET", "/v1/accuracy", None),
        "measurements": ("GET", "/v1/measurements.csv", None),
        "calibrations": ("GET", "/v1/calibrations.csv", None),
        **{plural: ("GET", f"/v1/{plural}.csv", None) for plural in sorted(FACTS)},
    }
    found = {}
    for name, (method, path, body) in asked.items():
        answer = service.by(caller, method, path, **({} if body is None else {"json": body}))
        assert answer.is_success or name == "unknown", (name, answer.text)
        found[name] = REQUEST_ID.sub(b"", answer.content)
    return found


REQUEST_ID = re.compile(rb'"request_id":"[0-9a-f]+"')


def test_nothing_that_one_owner_does_changes_a_digit_of_anothers_answers(service: Service) -> None:
    before = answers_of(service, "a")
    match = {"If-Match": "*"}
    for own in OWN:
        slug = f"matrix{' ' if own.plural == 'prices' else '-'}hostile"
        service.made(f"/v1/{own.plural}", own.named(slug), caller="b")
        path = f"/v1/{own.plural}/{own.key(slug)}"
        assert service.by("b", "PATCH", path, json=own.change, headers=match).status_code == 200
    cheap = {"provider": "lambda", "gpu": "h100", "region": "all", "usd_per_gpu_hour": 0.01}
    service.made("/v1/prices", cheap, caller="b")
    text = "provider,gpu,usd_per_gpu_hour\r\nrunpod,h100,0.01\r\n"
    assert service.by("b", "POST", "/v1/prices/import", content=text, headers={"Content-Type": "text/csv"}).is_success
    for number in range(16):
        service.made("/v1/measurements", run(f"invented {'x' * number}"), 200, caller="b")
    ids = [row["id"] for row in service.listed("/v1/measurements", "b")]
    for what, more in (("quarantine", {"reason": "x"}), ("release", {})):
        assert service.by("b", "POST", f"/v1/measurements/{what}", json={"ids": ids, **more}).status_code == 200
    drafted = service.made("/v1/calibrations", {**CHOSEN, "runs": ["invented x"]}, caller="b").json()["id"]
    promoted = service.by("b", "POST", f"/v1/calibrations/{drafted}/promote")
    assert promoted.status_code == 200, promoted.text
    service.made("/v1/scenarios", {"name": "hostile", "question": QUESTION}, caller="b")
    after = answers_of(service, "a")
    assert [name for name in before if before[name] != after[name]] == []

    assert answers_of(service, "b") != before, "the test would see a change"
    promoted = service.by("admin", "POST", f"/v1/calibrations/{drafted}/promote", json={"scope": "everyone"})
    assert promoted.status_code == 200, promoted.text
    changed = service.by("a", "POST", "/v1/estimates", json=QUESTION).json()
    assert changed["versions"]["calibration"] == drafted
    assert any(drafted in one and " of b, as of " in one for one in changed["assumptions"])
    assert any(" of b that an admin promoted" in one for one in changed["warnings"])
    (source,) = [one for one in changed["sources"] if one["kind"] == "calibration"]
    assert (source["name"], source["owner"], source["scope"]) == (drafted, "b", "everyone")
    assert "" not in (source["source"], source["as_of"])
    for path in ("/v1/gpu-hours", "/v1/memory", "/v1/flops", "/v1/check"):
        of_a, of_b = (service.by(caller, "POST", path, json=QUESTION).json() for caller in ("a", "b"))
        assert source in of_a["sources"]
        assert any(" of b that an admin promoted" in one for one in of_a["warnings"]), path
        assert source in of_b["sources"]
        assert not any(" that an admin promoted" in one for one in of_b["warnings"]), path
    explained = service.by("b", "POST", "/v1/estimates?explain=true", json=QUESTION).json()
    assert not any(" that an admin promoted" in one for one in explained["warnings"])
    explained = service.by("a", "POST", "/v1/estimates?explain=true", json=QUESTION).json()
    assert any(" of b that an admin promoted" in one for one in explained["warnings"])
    assert service.by("admin", "POST", f"/v1/calibrations/{drafted}/rollback").status_code == 200
    assert {**answers_of(service, "a"), **same_again(before)} == before


def same_again(before: dict[str, bytes]) -> dict[str, bytes]:
    """What tells of the promotion for good."""
    return {name: before[name] for name in ("revisions", "calibrations")}


def test_an_own_price_under_a_shipped_providers_name_is_named_with_the_shipped_one(service: Service) -> None:
    price = {"provider": "lambda", "gpu": "h100", "region": "all", "usd_per_gpu_hour": 0.02, "as_of": "2026-02"}
    made = service.made("/v1/prices", price, caller="b").json()
    answer = service.by("b", "POST", "/v1/estimates", json=QUESTIONS["by provider"]).json()
    assert any(" is a row of b, as of " in one and "stated by the owner" in one for one in answer["assumptions"])
    assert any("the shipped catalogue has" in one for one in answer["warnings"])
    (source,) = answer["sources"]
    assert (source["kind"], source["owner"], source["scope"]) == ("price", "b", "owner")
    assert service.by("b", "GET", f"/v1/prices/{source['name']}").json()["owner"] == "b"
    shipped = service.by("a", "POST", "/v1/estimates", json=QUESTIONS["by provider"]).json()["sources"]
    assert [(one["kind"], one["owner"], one["scope"]) for one in shipped] == [("price", "catalogue", "everyone")]
    assert service.by("a", "POST", "/v1/estimates", json=QUESTION).json()["sources"] == []
    gone = service.by("b", "DELETE", f"/v1/prices/{made['id']}", headers={"If-Match": "*"})
    assert gone.status_code == 204
