"""Rows that a test can bend: one of each kind, sound, with as little in it as the loader allows."""

from dataclasses import replace
from typing import Any

import pytest

from service.catalogue import Catalogue, ClusterRow, GpuRow, ModelRow, PriceRow
from service.catalogue.huggingface import import_config
from service.errors import Problem, Refused
from service.estimator import Cluster, Model
from service.estimator.model.build import MIXERS, layer_type, mlp_type
from service.estimator.question import LayerType
from service.estimator.samples import H100

READ: dict[str, Any] = {"source": "a data sheet", "as_of": "2026-01", "verified": "yes"}
"""Where the rows below would have been read."""


def model(slug: str, *aliases: str) -> ModelRow:
    tiny = Model(vocab_size=8, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4)
    return ModelRow(slug=slug, name=slug, family="tests", aliases=aliases, model=tiny, **READ)


def gpu(slug: str, *aliases: str, default_for: tuple[str, ...] = ()) -> GpuRow:
    return GpuRow(
        gpu=replace(H100, slug=slug),
        name=slug,
        vendor="tests",
        release_year=2022,
        aliases=aliases,
        default_for=default_for,
        usable_basis="stated",
        link_name="link",
        **READ,
    )


def cluster(slug: str, gpu_slug: str) -> ClusterRow:
    return ClusterRow(slug=slug, name=slug, cluster=Cluster(gpu=gpu_slug, gpus=8), **READ)


def price(**changes: Any) -> PriceRow:
    values: dict[str, Any] = {
        "provider": "aws",
        "instance_type": "p5.48xlarge",
        "gpu": "h100",
        "gpu_count": 8,
        "region": "us-east-1",
        "price_model": "on-demand",
        "stat": "point",
        "usd_per_gpu_hour": 2.0,
        "usd_per_instance_hour": 16.0,
        **READ,
    }
    return PriceRow(**{**values, **changes})


Row = ModelRow | GpuRow | ClusterRow | PriceRow


def catalogue(*rows: Row) -> Catalogue:
    return Catalogue.of(
        models=[row for row in rows if isinstance(row, ModelRow)],
        gpus=[row for row in rows if isinstance(row, GpuRow)],
        clusters=[row for row in rows if isinstance(row, ClusterRow)],
        prices=[row for row in rows if isinstance(row, PriceRow)],
    )


def letter_of(name: LayerType) -> str:
    """The first letter of its name there: every layer that carries a state is linear, or hybrid if it also attends."""
    mixer = MIXERS[name]
    if mixer.carries_state:
        return "h" if mixer.attends else "l"
    return name[0]


def attention_of(model: Model) -> str:
    """First letters of the kinds of attention, layer by layer."""
    return "".join(layer_type(model, i)[0] for i in range(model.num_hidden_layers))


def mlp_of(model: Model) -> str:
    """First letters of the kinds of MLP, layer by layer."""
    return "".join(mlp_type(model, i)[0] for i in range(model.num_hidden_layers))


def problem_of(config: dict[str, Any]) -> Problem:
    """The first problem that a refused config is told."""
    with pytest.raises(Refused) as refused:
        import_config(config)
    return refused.value.problems[0]
