"""Are the layers that mix tokens complete, and do their fields agree with each other and with the layers?"""

from dataclasses import MISSING, fields

from service.estimator.build import layer_shapes, mixers_of
from service.estimator.ledger import LayerShape
from service.estimator.mixers import MIXER_FIELDS, MIXERS, MLP_FIELDS
from service.estimator.model import Model
from service.estimator.rules import Demand, divisors_of

_DEFAULTS = {field.name: field.default for field in fields(Model)}
_NOTHING = (None, 0, (), False)
"""Values that describe nothing where a field has no default."""

_SHARED = (
    ("mamba_n_heads", "mamba_d_ssm"),
    ("mamba_n_groups", "mamba_n_heads"),
    ("linear_num_key_heads", "linear_num_value_heads"),
    ("num_attention_heads", "lru_width"),
)
"""Fields of which the first divides the second, where both are given."""


def _says(model: Model, name: str) -> bool:
    """Whether a field describes something that its absence would not."""
    value = getattr(model, name)
    return value not in _NOTHING if _DEFAULTS[name] is MISSING else value != _DEFAULTS[name]


def _missing(model: Model) -> list[str]:
    needed = dict.fromkeys(name for mixer in mixers_of(model) for name in MIXERS[mixer].needs)
    return [name for name in needed if not getattr(model, name)]


def _unread(model: Model) -> list[str]:
    read = {name for mixer in mixers_of(model) for name in (*MIXERS[mixer].needs, *MIXERS[mixer].takes)}
    return [name for name in MIXER_FIELDS if name not in read and _says(model, name)]


def _has_mlp(model: Model) -> bool:
    shares = any(MIXERS[mixer].shares_block for mixer in mixers_of(model))
    return shares or any(mlp != "none" for mlp in model.mlp_layer_types or ("dense",))


def _without_mlp(model: Model) -> list[str]:
    return [name for name in MLP_FIELDS if _says(model, name)]


def _sharing_layers(model: Model) -> int:
    return sum(MIXERS[shape.mixer].shares_block for shape in layer_shapes(model))


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
        "mixer_is_complete",
        "model.layer_types",
        lambda model, _: not _missing(model),
        lambda model, _: (
            f"layers of {', '.join(mixers_of(model))} are not described without {', '.join(_missing(model))}",
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
        "mlp_fields_have_an_mlp",
        "model.mlp_layer_types",
        lambda model, _: _has_mlp(model) or not _without_mlp(model),
        lambda model, _: (
            f"{' and '.join(_without_mlp(model))} describe an MLP, and no layer has one",
            "leave them out, or name layers with an MLP in mlp_layer_types",
        ),
    ),
    Demand(
        "shared_blocks_are_held",
        "model.num_mem_blocks",
        lambda model, _: not model.num_mem_blocks or model.num_mem_blocks <= _sharing_layers(model),
        lambda model, _: (
            f"{model.num_mem_blocks} blocks are shared by {_sharing_layers(model)} layers, so some would have none",
            f"use at most {_sharing_layers(model)}",
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
