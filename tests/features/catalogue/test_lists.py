"""Lists hold every row of the catalogue, page by page, filtered and sorted."""

from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator

from service.catalogue import Catalogue
from service.validation.flat import MOST_PARAMETERS
from tests.api.asking import KEYS, Ask, items_of


def _refusal(ask: Ask, path: str) -> dict[str, str]:
    answer = ask("GET", path)
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    (problem,) = answer.json()["errors"]
    assert isinstance(problem, dict)
    return problem


@pytest.mark.parametrize("plural", KEYS)
def test_pages_hold_every_row_once_in_the_order_of_the_keys(ask: Ask, catalogue: Catalogue, plural: str) -> None:
    keys: list[str] = []
    cursor = ""
    while True:
        page = ask("GET", f"/v1/{plural}?limit=7{cursor}").json()
        assert 1 <= len(page["items"]) <= 7
        keys += [item[KEYS[plural]] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert keys == sorted(set(keys))
    assert len(keys) == len(getattr(catalogue, plural))


def test_a_page_holds_a_hundred_rows_unless_told_otherwise(ask: Ask) -> None:
    assert len(items_of(ask, "/v1/prices")) == 100
    assert len(items_of(ask, "/v1/prices?limit=1000")) > 400


@pytest.mark.parametrize("plural", KEYS)
def test_every_item_is_as_the_contract_says_and_names_its_origin(
    document: dict[str, Any], ask: Ask, plural: str
) -> None:
    answers = document["paths"][f"/v1/{plural}"]["get"]["responses"]["200"]["content"]["application/json"]
    schema = {**answers["schema"], "components": document["components"]}
    page = ask("GET", f"/v1/{plural}?limit=1000").json()
    assert list(OAS31Validator(schema).iter_errors(page)) == []
    for item in page["items"]:
        assert item["source"]
        assert item["as_of"][:2] == "20"
        assert item["verified"] in {"yes", "partly", "no"}


@pytest.mark.parametrize("plural", KEYS)
def test_every_item_is_read_by_its_key(ask: Ask, plural: str) -> None:
    for item in items_of(ask, f"/v1/{plural}?limit=1000"):
        assert ask("GET", f"/v1/{plural}/{item[KEYS[plural]]}").json() == item


@pytest.mark.parametrize(
    ("path", "slug"),
    [
        ("/v1/models/meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("/v1/models/LLAMA-3.1-8B", "llama-3.1-8b"),
        ("/v1/gpus/h100", "h100-sxm5-80gb"),
        ("/v1/gpus/NVIDIA%20H100%2080GB%20HBM3", "h100-sxm5-80gb"),
    ],
)
def test_a_row_is_read_by_any_of_its_names(ask: Ask, path: str, slug: str) -> None:
    assert ask("GET", path).json()["slug"] == slug


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/v1/models/llama-3.1-9b", "llama-3.1-8b"),
        ("/v1/gpus/h1000", "h100-sxm5-80gb"),
        ("/v1/clusters/dgx-h1000", "dgx-h100"),
        ("/v1/prices/no-such-id", "GET /v1/prices"),
        ("/v1/gpus/", "the catalogue holds no gpu "),
    ],
)
def test_an_unknown_name_is_not_found_and_the_nearest_are_told(ask: Ask, path: str, told: str) -> None:
    answer = ask("GET", path)
    assert answer.status_code == 404
    assert told in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "column", "values"),
    [
        ("/v1/gpus?vendor=amd", "vendor", {"AMD"}),
        ("/v1/gpus?vendor=AMD&vendor=Intel", "vendor", {"AMD", "Intel"}),
        ("/v1/gpus?memory_bytes=85899345920&architecture=hopper", "memory_bytes", {80 * 2**30}),
        ("/v1/gpus?fp8_flop_per_s=&architecture=Ampere", "fp8_flop_per_s", {None}),
        ("/v1/gpus?slug=h100-sxm5-80gb", "slug", {"h100-sxm5-80gb"}),
        ("/v1/gpus?default_for=H100", "slug", {"h100-sxm5-80gb"}),
        ("/v1/models?hidden_size=4096&num_key_value_heads=8&family=Llama%203.1", "slug", {"llama-3.1-8b"}),
        ("/v1/models?tie_word_embeddings=true", "tie_word_embeddings", {True}),
        ("/v1/models?qk_norm=none&sliding_window=&limit=3", "sliding_window", {None}),
        ("/v1/clusters?gpu=h100-sxm5-80gb", "gpu", {"h100-sxm5-80gb"}),
        ("/v1/prices?provider=aws&price_model=spot&stat=min&gpu=h100-sxm5-80gb", "price_model", {"spot"}),
    ],
)
def test_a_column_filters(ask: Ask, path: str, column: str, values: set[object]) -> None:
    items = items_of(ask, path)
    assert {item[column] for item in items} == values


@pytest.mark.parametrize("plural", KEYS)
def test_every_column_is_a_filter_that_finds_its_row(ask: Ask, plural: str) -> None:
    item = items_of(ask, f"/v1/{plural}?limit=1")[0]
    for column, value in item.items():
        wanted = value[0] if isinstance(value, list) and value else value
        text = {True: "true", False: "false"}.get(wanted, wanted) if isinstance(wanted, bool) else wanted
        found = ask("GET", f"/v1/{plural}", params={column: "" if wanted in (None, []) else text, "limit": 1000})
        assert item in found.json()["items"], column


def test_no_row_passes_filters_that_exclude_each_other(ask: Ask) -> None:
    assert ask("GET", "/v1/gpus?vendor=AMD&architecture=Hopper").json() == {"items": [], "next_cursor": None}


def test_too_many_parameters_are_refused(ask: Ask) -> None:
    problem = _refusal(ask, f"/v1/gpus?{'&'.join(['vendor=AMD'] * (MOST_PARAMETERS + 1))}")
    assert problem["code"] == "too_many"
    assert f"at most {MOST_PARAMETERS}" in problem["fix"]


def test_many_unknown_parameters_are_a_small_refusal(ask: Ask) -> None:
    answer = ask("GET", "/v1/models?" + "&".join(f"x{number}=1" for number in range(2000)))
    assert answer.status_code == 422
    assert 1 < len(answer.json()["errors"]) <= 20
    assert len(answer.content) <= 16 * 1024


@pytest.mark.parametrize("plural", ["prices", "clusters"])
def test_a_gpu_is_filtered_by_any_of_its_names(plural: str, ask: Ask) -> None:
    exact = items_of(ask, f"/v1/{plural}?gpu=h100-sxm5-80gb")
    assert exact
    meant = items_of(ask, f"/v1/{plural}?gpu=h100&limit=1000")
    assert all(row in meant for row in exact)
    assert {row["gpu"].split("-")[0] for row in meant} == {"h100"}
    refused = ask("GET", f"/v1/{plural}?gpu=h1000")
    assert refused.status_code == 422
    (error,) = refused.json()["errors"]
    assert (error["parameter"], error["code"]) == ("gpu", "unknown_gpu")
    assert "h100" in error["fix"]


@pytest.mark.parametrize("path", ["/v1/gpus", "/v1/prices.csv", "/v1/prices.xlsx", "/v1/models/gpt2-124m"])
def test_lists_have_validators_and_heads(ask: Ask, path: str) -> None:
    answer = ask("GET", path)
    head = ask("HEAD", path)
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", answer.headers["etag"])
    known = ask("GET", path, headers={"If-None-Match": answer.headers["etag"]})
    assert (known.status_code, known.content) == (304, b"")


def test_other_methods_are_told_which_to_use(ask: Ask) -> None:
    answer = ask("POST", "/v1/gpus/h100-sxm5-80gb")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"
