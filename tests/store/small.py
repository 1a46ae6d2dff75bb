"""A catalogue of one row of each kind, with every kind of value that a column holds."""

from dataclasses import replace

from service.catalogue import (
    CalibrationRow,
    Catalogue,
    ClusterRow,
    GpuRow,
    ModelRow,
    PriceRow,
    PublishedCounts,
    RegionRow,
)
from service.catalogue.rows import Purchase
from service.estimator import Cluster, Model
from service.estimator.constants import (
    AttentionCalibration,
    DeviceCalibration,
    LinkCalibration,
    MatrixCalibration,
    MeasuredBytes,
    StepCalibration,
)
from service.estimator.question import MeasuredStep
from service.estimator.samples import H100

MODEL = ModelRow(
    slug="tiny",
    name="Tiny",
    family="Tests",
    aliases=("kleinst",),
    model=Model(
        vocab_size=1000,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        layer_types=("sliding_attention", "full_attention"),
        sliding_window=16,
    ),
    published=PublishedCounts(total=671_000_000_000, source="as large as a 64-bit column needs"),
    source="made up",
    as_of="2026-11",
    verified="no",
)
NOT_ESTIMATED = ModelRow(
    slug="linear",
    name="Linear",
    family="Tests",
    model=None,
    not_estimated="its layers are of no kind that is known",
    source="made up",
    as_of="2026",
    verified="no",
    note="größer als nichts",
)
GPU = GpuRow(
    gpu=replace(H100, fp4_flop_per_s=None, memory_bytes=80.5 * 2**30),
    name="H100",
    vendor="NVIDIA",
    release_year=2022,
    aliases=("NVIDIA H100 80GB HBM3", "h100"),
    default_for=("h100",),
    usable_basis="seen",
    link_name="NVLink 4",
    purchase=Purchase(usd=30_000.5, as_of="2025-03", source="an offer"),
    source="made up",
    as_of="2026-11-21",
    verified="partly",
)
CLUSTER = ClusterRow(
    slug="box",
    name="Box",
    cluster=Cluster(gpu=H100.slug, gpus=8, pue=1.2, grid_region="hall", failures_per_gpu_hour=1e-5),
    source="made up",
    as_of="2026",
    verified="yes",
)
PRICE = PriceRow(
    provider="somebody",
    instance_type="box.8",
    gpu=H100.slug,
    gpu_count=8,
    region="here",
    price_model="on-demand",
    stat="point",
    usd_per_gpu_hour=0.1,
    usd_per_instance_hour=0.8,
    source="made up",
    as_of="2026",
    verified="yes",
)
REGION = RegionRow(
    slug="hall",
    name="Hall",
    kind="own",
    country="DEU",
    aliases=("the hall",),
    grid_kg_co2e_per_kwh=0.3,
    pue=1.2,
    pue_source="its meter",
    source="made up",
    as_of="2026",
    verified="yes",
)
CALIBRATION = CalibrationRow(
    gpu=H100.slug,
    calibration=DeviceCalibration(
        id="cal_small",
        matrix=(MatrixCalibration(format="bf16", flop_per_s=6e14),),
        attention=(AttentionCalibration(kernel="cudnn", forward_fraction=0.6),),
        links=(LinkCalibration(collective="all_gather", link_fraction=0.9),),
        memory_bytes_per_s=2.9e12,
        context_bytes=MeasuredBytes(low=5e8, value=5.1e8, high=5.2e8),
        steps=(
            StepCalibration(
                stack="transformers",
                implementation="eager",
                step=MeasuredStep(predicted_seconds=1.0, measured_seconds=1.1),
            ),
        ),
    ),
    source="made up",
    as_of="2026",
    verified="yes",
)
SMALL = Catalogue.from_rows([MODEL, NOT_ESTIMATED, GPU, CLUSTER, PRICE, REGION, CALIBRATION])
