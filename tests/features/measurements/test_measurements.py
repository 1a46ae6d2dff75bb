"""Measurements are stored as sent, beside their predictions, and doubtful ones in quarantine."""

import csv
import io
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import asdict, replace
from typing import Any

import pytest
from pyarrow import parquet

from service.api.openapi import PARQUET
from service.calibration.records import Environment
from service.features.measurements.measurements import fingerprint_of
from service.features.measurements.routes import MEASUREMENT_ID
from tests.api.asking import NCCL_TESTS, PRODUCTS, RECORDS, Ask
from tests.fixtures import NewUrl, asking, one_by_one, running

PATH = "/v1/measurements"


@pytest.fixture(scope="module")
def measuring(new_url: NewUrl) -> Iterator[Ask]:
    """Asks a service with a database of its own, into which the example came."""
    with running(new_url()) as app, asking(app) as together:
        ask = one_by_one(together)
        assert ask("POST", PATH, json=RECORDS).status_code == 200
        yield ask


def changed(**told: Any) -> dict[str, Any]:
    """The example in another run, its environment or its first measurement changed."""
    body = deepcopy(RECORDS)
    record = body["records"][0]
    body["run"] = told.pop("run", "another")
    record["environment"] |= told.pop("environment", {})
    record["measurements"][0] |= told
    return body


def rows(ask: Ask, **query: str) -> list[dict[str, Any]]:
    answer = ask("GET", PATH, params={"limit": 1000, **query})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


def test_what_was_sent_is_listed_beside_what_was_predicted(measuring: Ask) -> None:
    found = rows(measuring, run="node-7", sort="value")
    assert [row["value"] for row in found] == sorted(one["value"] for one in PRODUCTS)
    assert {row["gpu"] for row in found} == {"h100-sxm5-80gb"}
    for row in found:
        assert row["ratio"] == pytest.approx(row["value"] / row["predicted_value"])
        assert 1 < row["ratio"] < 1.5
        assert row["quarantined_at"] is None


def test_one_is_read_with_its_shape_and_what_it_was_measured_on(measuring: Ask) -> None:
    one = measuring("GET", f"{PATH}/{MEASUREMENT_ID}").json()
    assert one["shape"] == RECORDS["records"][0]["measurements"][0]["shape"]
    assert one["environment"]["driver"] == "580.95"
    assert measuring("GET", f"{PATH}/msr_none").status_code == 404


def test_what_comes_twice_is_kept_once(measuring: Ask) -> None:
    before = len(rows(measuring, run="node-7"))
    again = measuring("POST", PATH, json=RECORDS).json()
    assert again["ids"][0] == MEASUREMENT_ID
    assert len(rows(measuring, run="node-7")) == before


def test_a_file_that_says_neither_run_nor_moment_comes_in_once(measuring: Ask) -> None:
    bare = {"records": changed(environment={"driver": "bare"})["records"]}
    first, again = (measuring("POST", PATH, json=bare).json() for _ in range(2))
    assert (again["run"], again["ids"]) == (first["run"], first["ids"])
    assert len(rows(measuring, run=first["run"])) == len(first["ids"])
    other = {"records": changed(environment={"driver": "other"})["records"]}
    assert measuring("POST", PATH, json=other).json()["run"] != first["run"]


def test_tables_and_columns_hold_the_same_rows(measuring: Ask) -> None:
    query = {"run": "node-7", "sort": "id"}
    shown = rows(measuring, **query)
    table = list(csv.DictReader(io.StringIO(measuring("GET", f"{PATH}.csv", params=query).text)))
    by_name = measuring("GET", f"{PATH}.parquet", params=query)
    by_accept = measuring("GET", PATH, params=query, headers={"accept": PARQUET})
    assert by_name.content == by_accept.content
    assert by_accept.headers["content-type"] == PARQUET
    held = parquet.read_table(io.BytesIO(by_name.content))
    assert held.to_pylist() == shown
    assert [row["id"] for row in table] == [row["id"] for row in shown]
    assert [float(row["value"]) for row in table] == [row["value"] for row in shown]
    assert measuring("GET", f"{PATH}.xlsx", params=query).content.startswith(b"PK")


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"environment": {"throttle_reasons": ["hw_slowdown"]}}, "throttled: the board lowered its clock"),
        ({"environment": {"other_processes": 1}}, "shared: 1 other process(es) used the device"),
        ({"environment": {"is_partition": True}}, "divided: the device is a slice of a GPU"),
        ({"relative_error_fraction": 0.7}, "wrong: its result is off by 0.7 of the largest number"),
    ],
)
def test_what_is_doubtful_goes_into_quarantine(measuring: Ask, told: dict[str, Any], reason: str) -> None:
    kept = measuring("POST", PATH, json=changed(run=reason[:20], **told)).json()
    found = rows(measuring, run=reason[:20], reason=reason)
    assert kept["quarantined"] == len(found) == (1 if "relative_error_fraction" in told else len(PRODUCTS))


def test_an_outlier_among_its_like_goes_into_quarantine(measuring: Ask) -> None:
    usual = PRODUCTS[0]["value"]
    for number, factor in enumerate((1.0, 1.01, 0.99, 1.0, 3.0)):
        value = usual * factor
        body = changed(run=f"twin-{number}", value=value, low=value, high=value, environment={"driver": "590"})
        assert measuring("POST", PATH, json=body).status_code == 200
    (last,) = [row for row in rows(measuring, run="twin-4") if row["value"] == pytest.approx(3 * usual)]
    assert last["reason"] == "outlier: 3 times the median of 4 others"
    assert all(row["reason"] is None for row in rows(measuring, run="twin-3"))


def test_somebody_takes_measurements_out_and_back_in(measuring: Ask) -> None:
    doubt = {"ids": [MEASUREMENT_ID], "reason": "the fan was broken"}
    (out,) = measuring("POST", f"{PATH}/quarantine", json=doubt).json()["items"]
    assert out["reason"] == "the fan was broken"
    assert out["quarantined_at"].endswith("Z")
    (back,) = measuring("POST", f"{PATH}/release", json={"ids": [MEASUREMENT_ID]}).json()["items"]
    assert (back["quarantined_at"], back["reason"]) == (None, None)
    unknown = measuring("POST", f"{PATH}/quarantine", json={"ids": ["msr_a", MEASUREMENT_ID], "reason": "x"})
    assert (unknown.status_code, unknown.json()["errors"][0]["code"]) == (422, "not_found")
    assert rows(measuring, id=MEASUREMENT_ID)[0]["reason"] is None


@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        ({}, "/records", "required"),
        ({**RECORDS, "who": 1}, "/who", "unknown_field"),
        ({**RECORDS, "measured_at": "yesterday"}, "/measured_at", "not_a_moment"),
        (changed(value=-1.0), "/records/0/measurements/0/value", "unreadable"),
        (changed(high=1e-9), "/records/0/measurements/0/value", "unreadable"),
        (changed(quantity="hours"), "/records/0/measurements/0/quantity", "unreadable"),
        (changed(repeats=1 << 31), "/records/0/measurements/0/repeats", "unreadable"),
        (changed(shape={"rows": 1}), "/records/0/measurements/0/shape/columns", "unreadable"),
        (changed(environment={"kind": "tpu"}), "/records/0/environment/kind", "not_a_choice"),
        ({"records": [{**RECORDS["records"][0], "environment": None}]}, "/records/0/environment", "required"),
    ],
)
def test_what_nobody_can_read_is_refused_by_its_place(
    measuring: Ask, body: dict[str, Any], pointer: str, code: str
) -> None:
    answer = measuring("POST", PATH, json=body)
    assert answer.status_code == 422
    assert (pointer, code) in {(one.get("pointer"), one["code"]) for one in answer.json()["errors"]}


def imported(ask: Ask, name: str, content: str | bytes, **query: str) -> Any:
    return ask("POST", f"{PATH}/imports/{name}", content=content, params=query, headers={"content-type": "text/plain"})


def test_files_of_other_tools_come_in(measuring: Ask) -> None:
    kept = imported(measuring, "nccl-tests", NCCL_TESTS, run="nccl", source="our own cluster").json()
    found = rows(measuring, run="nccl")
    assert kept["measurements"] == len(found) == 4
    assert {(row["probe"], row["operation"], row["gpu"]) for row in found} == {
        ("collective", "all_reduce", "h100-sxm5-80gb")
    }
    assert all(0.5 < row["ratio"] < 2 for row in found)
    table = "device,dtype,rows,columns,inner,tflop_per_s\nNVIDIA H100 80GB HBM3,bf16,8192,8192,8192,600\n"
    assert imported(measuring, "gemm-csv", table, run="table").json()["measurements"] == 1
    snapshot = '{"segments": [{"total_size": 2097152, "allocated_size": 1024}]}'
    answer = imported(measuring, "memory-snapshot", snapshot, run="snapshot", device="NVIDIA H100 80GB HBM3")
    assert answer.json()["measurements"] == 2
    assert {row["predicted_value"] for row in rows(measuring, run="snapshot")} == {None}


@pytest.mark.parametrize(
    ("name", "content", "query", "status", "code"),
    [
        ("nccl-tests", "", {}, 422, "empty"),
        ("nccl-tests", NCCL_TESTS, {"operation": "broadcast"}, 422, "not_a_choice"),
        ("gemm-csv", "device,speed\n", {}, 422, "unknown_column"),
        ("memory-snapshot", "{}", {}, 422, "required"),
        ("memory-snapshot", b"\x80\x04\x95", {"device": "H100"}, 422, "pickle"),
        ("memory-snapshot", b"\xff\xfe\x00", {"device": "H100"}, 422, "not_text"),
        ("memory-snapshot", "{}", {"device": "H100", "memory_bytes": "much"}, 422, "not_a_number"),
        ("nccl-tests", NCCL_TESTS, {"nodes": "2"}, 422, "unknown_parameter"),
        ("excel", "a", {}, 404, "not_found"),
    ],
)
def test_files_that_are_none_are_refused(
    measuring: Ask, name: str, content: str | bytes, query: dict[str, str], status: int, code: str
) -> None:
    answer = imported(measuring, name, content, **query)
    told = answer.json()
    assert answer.status_code == status, told
    assert code in {told["code"], *(one["code"] for one in told["errors"])}


PROCESSOR = Environment(kind="cpu", device="AMD EPYC", devices=1, memory_bytes=8e9, threads=2)
WIDE = replace(PROCESSOR, instructions=("avx2", "avx512f"))


def test_processors_of_one_name_and_other_instructions_are_two() -> None:
    assert fingerprint_of(asdict(WIDE)) != fingerprint_of(asdict(PROCESSOR))
    assert fingerprint_of(asdict(WIDE)) == fingerprint_of({**asdict(WIDE), "instructions": ["avx2", "avx512f"]})


def test_what_nobody_told_tells_nothing_apart() -> None:
    """Measurements from before instructions were told go on being compared with those of devices that have none."""
    before = asdict(PROCESSOR)
    del before["instructions"]
    assert fingerprint_of(before) == fingerprint_of(asdict(PROCESSOR))


def test_what_differs_from_minute_to_minute_does_not_count() -> None:
    later = replace(PROCESSOR, clock_hz=2e9, throttle_reasons=("hw_slowdown",), other_processes=1)
    assert fingerprint_of(asdict(later)) == fingerprint_of(asdict(PROCESSOR))
