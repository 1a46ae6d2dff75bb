"""Are the layers that mix tokens complete, and do their fields agree with each other and with the layers?"""

from service.estimator.build import layer_shapes, mixers_of
from service.estimator.ledger import LayerShape
from service.estimator.mixers import MIXER_FIELDS, MIXERS
from service.estimator.model import Model
from service.estimator.rules import Demand, divisors_of

_NEUTRAL = (None, 0, False, "none", ())
"""Values of a field that says nothing."""

_ATTENTION_ONLY = ("num_key_value_heads", "head_dim", "qk_norm", "attention_gate", "attention_sinks", "attention_bias")

_SHARED = (
    ("mamba_n_heads", "mamba_d_ssm"),
    ("mamba_n_groups", "mamba_n_heads"),
    ("linear_num_key_heads", "linear_num_value_heads"),
    ("num_attention_heads", "lru_width"),
)
"""Fields of which the first divides the second, where both are given."""


def _says(model: Model, name: str) -> bool:
    return getattr(model, name) not in _NEUTRAL


def _missing(model: Model) -> list[str]:
    needed = dict.fromkeys(name for mixer in mixers_of(model) for name in MIXERS[mixer].needs)
    return [name for name in needed if not _says(model, name)]


def _unread(model: Model) -> list[str]:
    read = {name for mixer in mixers_of(model) for name in (*MIXERS[mixer].needs, *MIXERS[mixer].takes)}
    return [name for name in MIXER_FIELDS if name not in read and _says(model, name)]


def _without_heads(model: Model) -> list[str]:
    return [name for name in _ATTENTION_ONLY if _says(model, name)]


def _uneven(model: Model) -> tuple[str, str] | None:
    """The first pair of fields that do not divide."""
    given = ((few, many) for few, many in _SHARED if getattr(model, few) and getattr(model, many))
    return next(((few, many) for few, many in given if getattr(model, many) % getattr(model, few)), None)


def _uneven_words(model: Model) -> tuple[str, str]:
    few, many = _uneven(model) or _SHARED[0]
    number = getattr(model, many)
    return (
        f"{few} {getattr(model, few)} does not divide {many} {number}, so the heads would differ",
        f"make {few} {divisors_of(number)}",
    )


def _does_something(shape: LayerShape) -> bool:
    return (shape.mixer, shape.mlp) != ("none", "none")


DEMANDS: tuple[Demand[Model], ...] = (
    Demand(
        "attention_has_heads",
        "model.num_attention_heads",
        lambda model, _: model.num_attention_heads > 0 or not any(MIXERS[mixer].attends for mixer in mixers_of(model)),
        lambda _, __: (
            "the model has layers of attention, and no heads",
            "give num_attention_heads, or layer_types without attention",
        ),
    ),
    Demand(
        "heads_have_attention",
        "model.num_attention_heads",
        lambda model, _: model.num_attention_heads > 0 or not _without_heads(model),
        lambda model, _: (
            f"{' and '.join(_without_heads(model))} describe attention, and the model has no attention heads",
            "leave them out, or give num_attention_heads",
        ),
    ),
    Demand(
        "mixer_is_complete",
        "model.layer_types",
        lambda model, _: not _missing(model),
        lambda model, _: (
            f"layer_types names {', '.join(mixers_of(model))}, which {', '.join(_missing(model))} would describe",
            f"give {', '.join(_missing(model))}",
        ),
    ),
    Demand(
        "mixer_fields_are_used",
        "model.layer_types",
        lambda model, _: not _unread(model),
        lambda model, _: (
            f"{', '.join(_unread(model))}: no layer in layer_types reads them",
            "leave them out, or name the layers that they describe",
        ),
    ),
    Demand(
        "mixer_heads_share_evenly",
        "model.layer_types",
        lambda model, _: _uneven(model) is None,
        lambda model, _: _uneven_words(model),
    ),
    Demand(
        "adapters_have_a_rank",
        "model.adapter_rank",
        lambda model, _: not model.shared_attention_adapter or model.adapter_rank > 0,
        lambda _, __: ("adapters on the shared attention, and their rank is unknown", "give adapter_rank"),
    ),
    Demand(
        "layers_mix_something",
        "model.layer_types",
        lambda model, _: "none" not in model.layer_types or all(map(_does_something, layer_shapes(model))),
        lambda _, __: (
            "a layer mixes neither tokens nor channels, so it does nothing",
            "name another mixer in layer_types, or another MLP in mlp_layer_types",
        ),
    ),
)
