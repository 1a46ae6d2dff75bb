"""Rows without a source or with a value that is no number do not load."""

from typing import Any

import pytest

from service.catalogue import UnsoundFact
from service.catalogue.shipped import check_row, cluster_row, gpu_row, model_row, price_row
from service.errors import StartupError

MODEL: dict[str, Any] = {
    "slug": "tiny",
    "name": "Tiny",
    "family": "tests",
    "model": {
        "vocab_size": 8,
        "hidden_size": 4,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": 4,
    },
    "source": "a config.json",
    "as_of": "2026-01-31",
    "verified": "yes",
}
GPU = {
    "slug": "card",
    "name": "Card",
    "vendor": "tests",
    "architecture": "Volta",
    "release_year": "2017",
    "aliases": "Tesla Card;CARD-X",
    "default_for": "",
    "memory_gib": "16",
    "usable_gib": "15.5",
    "usable_basis": "stated",
    "memory_gb_per_s": "900",
    "fp32_tflop_per_s": "15.7",
    "tf32_tflop_per_s": "",
    "bf16_tflop_per_s": "",
    "fp16_tflop_per_s": "125",
    "fp8_tflop_per_s": "",
    "fp4_tflop_per_s": "",
    "int8_tflop_per_s": "",
    "link_name": "NVLink 2",
    "purchase_usd": "",
    "purchase_as_of": "",
    "purchase_source": "",
    "link_gb_per_s": "150",
    "scale_up_gpus": "8",
    "network_gbit_per_s": "100",
    "host_gb_per_s": "16",
    "board_watts": "300",
    "source": "a data sheet",
    "as_of": "2026",
    "verified": "partly",
    "note": "",
}
CLUSTER: dict[str, Any] = {
    "name": "Box",
    "gpu": "card",
    "gpus": 8,
    "gpus_per_node": 8,
    "scale_up_gpus": 8,
    "network_gbit_per_s": 400,
    "source": "a data sheet",
    "as_of": "2026",
    "verified": "no",
}
PRICE = {
    "provider": "aws",
    "instance_type": "p5.48xlarge",
    "gpu": "card",
    "gpu_count": "8",
    "region": "us-east-1",
    "price_model": "on-demand",
    "stat": "point",
    "usd_per_gpu_hour": "2",
    "usd_per_instance_hour": "16",
    "as_of": "2025-03-17",
    "source": "a price list",
    "verified": "yes",
    "note": "",
}


def _parse(kind: str, **changes: Any) -> Any:
    if kind == "cluster":
        parsed: Any = cluster_row("box", {**CLUSTER, **changes})
    else:
        parse, row = {"model": (model_row, MODEL), "gpu": (gpu_row, GPU), "price": (price_row, PRICE)}[kind]
        parsed = parse({**row, **changes})
    check_row(parsed)
    return parsed


KINDS = ("model", "gpu", "cluster", "price")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("column", "wrong", "said"),
    [
        ("source", "", "source"),
        ("source", "  ", "source"),
        ("as_of", "", "as_of"),
        ("as_of", "last year", "as_of"),
        ("as_of", "2025-3", "as_of"),
        ("verified", "maybe", "verified"),
    ],
)
def test_row_without_provenance_does_not_load(kind: str, column: str, wrong: str, said: str) -> None:
    with pytest.raises(UnsoundFact, match=said):
        _parse(kind, **{column: wrong})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("column", ["source", "as_of", "verified"])
def test_row_without_the_column_does_not_load(kind: str, column: str) -> None:
    rows = {"model": MODEL, "gpu": GPU, "cluster": CLUSTER, "price": PRICE}
    row = {name: value for name, value in rows[kind].items() if name != column}
    parse = {"model": model_row, "gpu": gpu_row, "price": price_row}.get(kind, lambda one: cluster_row("box", one))
    with pytest.raises(UnsoundFact):
        parse(row)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("as_of", ["2025", "2025-03", "2025-03-17"])
def test_date_may_be_as_exact_as_it_is_known(kind: str, as_of: str) -> None:
    assert _parse(kind, as_of=as_of).as_of == as_of


def test_an_unsound_fact_stops_the_start_with_one_line() -> None:
    assert issubclass(UnsoundFact, StartupError)
    with pytest.raises(UnsoundFact) as refused:
        _parse("gpu", memory_gib="plenty")
    assert str(refused.value).startswith("gpu card: ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("wrong", ["0", "-1", "nan", "inf", "", "sixteen"])
@pytest.mark.parametrize("column", ["memory_gib", "usable_gib", "link_gb_per_s", "network_gbit_per_s", "board_watts"])
def test_gpu_needs_numbers_above_zero(column: str, wrong: str) -> None:
    with pytest.raises(UnsoundFact):
        _parse("gpu", **{column: wrong})


def test_data_sheet_units_become_base_units() -> None:
    gpu = _parse("gpu").gpu
    assert gpu.memory_bytes == 16 * 2**30
    assert gpu.usable_bytes == 15.5 * 2**30
    assert gpu.memory_bytes_per_s == 900e9
    assert gpu.fp16_flop_per_s == 125e12
    assert gpu.link_bytes_per_s == 150e9
    assert gpu.inter_node_bytes_per_s == 12.5e9
    assert gpu.host_bytes_per_s == 16e9
    assert gpu.bf16_flop_per_s is None


def test_fp32_products_run_at_tf32_where_there_is_tf32() -> None:
    assert _parse("gpu").gpu.fp32_flop_per_s == 15.7e12
    assert _parse("gpu", tf32_tflop_per_s="156").gpu.fp32_flop_per_s == 156e12


@pytest.mark.parametrize("misspelt", ["Hoper", "hopper", "Volta ", ""])
def test_misspelt_architecture_does_not_pass_for_an_unmeasured_one(misspelt: str) -> None:
    with pytest.raises(UnsoundFact, match="architecture"):
        _parse("gpu", architecture=misspelt)
    assert _parse("gpu", architecture="Hopper").gpu.architecture == "Hopper"


def test_cluster_network_is_that_of_one_gpu() -> None:
    assert _parse("cluster").cluster.inter_node_bytes_per_s == 50e9


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_size": "4"},
        {"hidden_size": 0},
        {"hidden_size": 4.0},
        {"tie_word_embeddings": 1},
        {"normalization": "batchnorm"},
        {"layer_types": ["linear_attention"]},
        {"width": 4},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_model_is_held_to_the_bounds_of_the_noun(changes: dict[str, Any]) -> None:
    with pytest.raises(UnsoundFact, match="model tiny"):
        _parse("model", model={**MODEL["model"], **changes})


def test_model_is_either_described_or_told_why_not() -> None:
    without = {name: value for name, value in MODEL.items() if name != "model"}
    assert model_row({**without, "not_estimated": "its layers are not known"}).model is None
    with pytest.raises(UnsoundFact, match="either"):
        model_row(without)
    with pytest.raises(UnsoundFact, match="either"):
        _parse("model", not_estimated="its layers are not known")


def test_price_of_the_machine_is_that_of_its_gpus() -> None:
    assert _parse("price", usd_per_gpu_hour="1.99", usd_per_instance_hour="15.9").usd_per_gpu_hour == 1.99
    with pytest.raises(UnsoundFact, match="machine"):
        _parse("price", usd_per_instance_hour="160")


@pytest.mark.parametrize(
    ("column", "wrong"), [("price_model", "on demand"), ("stat", "mean"), ("gpu_count", "0"), ("gpu_count", "-8")]
)
def test_price_is_on_known_terms_for_some_gpus(column: str, wrong: str) -> None:
    with pytest.raises(UnsoundFact, match=r"price aws.p5"):
        _parse("price", **{column: wrong})
