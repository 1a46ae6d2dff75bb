"""Shipped rows are complete, sourced and consistent.

Adding a row touches its data file alone: what is pinned here are lower bounds and the names people rely on.
"""

from collections import Counter

import pytest

from service.catalogue import GpuRow, ModelRow, checked_catalogue
from service.catalogue.indexes import normal
from service.catalogue.shipped import UNMEASURED_ARCHITECTURES
from service.errors import UnknownName
from service.estimator import count_parameters
from service.estimator.time.rates import MATRIX_RATES
from tests.cases import each_case

FACTS = checked_catalogue()
MODELS = list(FACTS.models.values())
ESTIMATED = [row for row in MODELS if row.model]
GPUS = list(FACTS.gpus.values())

PUBLISHED_APART = {"gpt2-1.5b": 1.038, "llama-2-7b": 0.963, "falcon-40b": 1.033}
"""Exact over published count where it is more than 3 % off 1: names rounded by their makers."""

GPU_DEFAULTS = {
    "h100": "h100-sxm5-80gb",
    "h800": "h800-sxm5-80gb",
    "a100": "a100-sxm4-40gb",
    "a100-80gb": "a100-sxm4-80gb",
    "a800": "a800-sxm4-80gb",
    "v100": "v100-sxm2-16gb",
    "p100": "p100-pcie-16gb",
    "nvidia-tesla-p100": "p100-pcie-16gb",
    "gh200": "gh200-96gb",
    "rtxpro6000": "rtx-pro-6000-blackwell-server",
}


def _slug(row: ModelRow | GpuRow) -> str:
    return row.slug


def test_nothing_is_missing() -> None:
    assert len(FACTS.models) >= 147
    assert len(FACTS.gpus) >= 62
    assert len(FACTS.prices) >= 444
    assert set(FACTS.clusters) >= {
        *("dgx-a100", "dgx-h100", "hgx-h100", "dgx-h200", "dgx-b200", "gb200-nvl72", "aws-p4d", "aws-p5", "aws-p5en"),
        *("gcp-a3-high", "gcp-a3-mega", "azure-nd-h100-v5", "mi300x-node"),
    }


@each_case("row", ESTIMATED, ids=_slug)
def test_parameters_equal_the_exact_counts(row: ModelRow) -> None:
    assert row.model
    assert row.exact
    counts = count_parameters(row.model)
    counted = {
        "total": counts.total,
        "active": counts.active.total,
        "non_embedding": counts.non_embedding,
        "input_embedding": counts.input_embedding,
        "position_embedding": counts.position_embedding,
        "lm_head": counts.lm_head,
        "routed_experts": counts.routed_experts,
        "shared_experts": counts.shared_experts,
        "multi_token_prediction": counts.multi_token_prediction,
    }
    assert counted == {name: getattr(row.exact, name) for name in counted}


@each_case("row", [row for row in MODELS if row.published], ids=_slug)
def test_published_count_is_the_exact_one_rounded(row: ModelRow) -> None:
    assert row.exact
    assert row.published
    assert row.published.source
    assert row.exact.total / row.published.total == pytest.approx(PUBLISHED_APART.get(row.slug, 1), abs=0.03)


def test_every_shipped_model_can_be_estimated() -> None:
    assert [row.slug for row in MODELS if row.model is None] == []


@each_case("row", MODELS, ids=_slug)
def test_every_name_of_a_model_finds_it(row: ModelRow) -> None:
    names = [row.slug, row.name, *row.aliases, row.slug.replace("-", "")]
    names += [row.hugging_face_id] if row.hugging_face_id else []
    for name in names:
        for spelled in (name, name.upper(), name.replace("-", "_")):
            assert FACTS.find_model(spelled) == (row, None)


def _names(row: GpuRow) -> dict[str, str]:
    return {normal(name): name for name in (row.slug, row.name, *row.aliases)}


def _told_of(shared: str) -> str:
    try:
        return FACTS.find_gpu(shared).assumption or ""
    except UnknownName as refused:
        return refused.problems[0].fix


TIMES_NAMED = Counter(form for row in GPUS for form in _names(row))


@each_case("row", GPUS, ids=_slug)
def test_every_name_of_a_gpu_finds_it_or_the_gpus_that_share_it(row: GpuRow) -> None:
    names = _names(row)
    own = [name for form, name in names.items() if TIMES_NAMED[form] == 1]
    assert all(FACTS.find_gpu(name) == (row, None) for name in own)
    assert len(own) >= 2
    for name in set(names.values()) - set(own):
        assert row.slug in _told_of(name)


def test_architectures_are_either_measured_or_known_not_to_be() -> None:
    """gpu_row refuses any other; a generation leaves the list once it is measured or nobody has it."""
    assert not UNMEASURED_ARCHITECTURES & MATRIX_RATES.keys()
    assert {row.gpu.architecture for row in GPUS} >= UNMEASURED_ARCHITECTURES


@each_case(("alias", "slug"), GPU_DEFAULTS.items(), ids=GPU_DEFAULTS)
def test_shared_alias_of_gpus_has_a_default(alias: str, slug: str) -> None:
    found = FACTS.find_gpu(alias)
    assert found.row.slug == slug
    assert found.assumption


@each_case("row", GPUS, ids=_slug)
def test_gpu_is_plausible(row: GpuRow) -> None:
    gpu = row.gpu
    assert 0.9 < gpu.usable_bytes / gpu.memory_bytes < 1.01
    assert gpu.memory_bytes < 2**40
    assert gpu.fp16_flop_per_s or gpu.bf16_flop_per_s
    peaks = [gpu.fp32_flop_per_s, gpu.bf16_flop_per_s, gpu.fp8_flop_per_s, gpu.fp4_flop_per_s]
    known = [peak for peak in peaks if peak]
    assert known == sorted(known), "a narrower format is not slower"
    assert gpu.host_bytes_per_s <= gpu.link_bytes_per_s
    assert row.link_name
    assert row.usable_basis


@each_case(
    ("slug", "usable_gib", "rates"),
    [
        ("a100-sxm4-80gb", 79.15, (312e12, 2039e9, 300e9, 25e9, 400)),
        ("h100-sxm5-80gb", 79.10, (989.4e12, 3350e9, 450e9, 50e9, 700)),
        ("h200-sxm5-141gb", 139.80, (989.4e12, 4800e9, 450e9, 50e9, 700)),
        ("b200-sxm-180gb", 178.35, (2250e12, 7700e9, 900e9, 50e9, 1000)),
    ],
)
def test_gpu_of_the_data_sheet(slug: str, usable_gib: float, rates: tuple[float, ...]) -> None:
    """NVIDIA data sheets: dense bf16, memory, NVLink one way, adapter, power; usable memory as PyTorch reports it."""
    gpu = FACTS.gpus[slug].gpu
    assert gpu.usable_bytes == usable_gib * 2**30
    told = (gpu.bf16_flop_per_s, gpu.memory_bytes_per_s, gpu.link_bytes_per_s, gpu.inter_node_bytes_per_s)
    assert (*told, gpu.board_watts) == rates


@each_case("slug", FACTS.clusters)
def test_cluster_is_whole_nodes_of_one_domain(slug: str) -> None:
    cluster = FACTS.clusters[slug].cluster
    assert cluster.gpus % cluster.gpus_per_node == 0
    assert cluster.scale_up_gpus == FACTS.gpus[cluster.gpu].gpu.scale_up_gpus
    assert cluster.inter_node_bytes_per_s
    assert cluster.inter_node_bytes_per_s <= FACTS.gpus[cluster.gpu].gpu.inter_node_bytes_per_s


def test_gb200_rack_is_one_domain_of_trays() -> None:
    rack = FACTS.find_cluster("NVL72").row.cluster
    assert (rack.gpus, rack.gpus_per_node, rack.scale_up_gpus) == (72, 4, 72)


def test_range_has_both_ends() -> None:
    ends = {
        stat: {
            (row.provider, row.instance_type, row.gpu, row.region, row.price_model)
            for row in FACTS.prices
            if row.stat == stat
        }
        for stat in ("min", "max")
    }
    spot = {end for end in ends["min"] if not end[0].startswith("market:")}
    assert spot <= ends["max"]
