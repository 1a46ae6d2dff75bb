"""Recipes that torch can run by itself. What cannot be run is refused by its field, never ignored."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from service.errors import Problem, Refused
from service.worker.training.decoder import WEIGHTS

KERNELS = {"eager": "eager", "flash": "flash", "flash-2": "flash-2", "cudnn": "cudnn"}
"""Attention kernels of torch, by their names in recipes."""

OPTIMIZERS = ("adamw", "sgd-momentum")
"""Optimizers of torch."""

_EMPTY: tuple[Any, ...] = (None, False, 0, "none", (), [])

_PRESETS: Mapping[str, Any] = {
    "precision": "bf16-mixed",
    "optimizer": "adamw",
    "attention": "flash",
    "stack": None,
    "recompute": "none",
}

_USUAL = {"method": "full", "offload": "none", "batching": "packed", "expert_imbalance": 1.0, "checkpoint": None}
"""Values of a recipe that one device without data parallelism requires."""

_NO_EFFECT = (
    "global_batch", "global_batch_tokens", "training_tokens", "stages", "checkpoint", "vocabulary_multiple",
    "expert_imbalance", "gradient_dtype",
)  # fmt: skip
"""Fields without effect in one step of one micro-batch on one device, or that restate the precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecipe:
    """The recipe of a step."""

    sequence_length: int
    """Tokens of a sequence."""
    micro_batch: int
    """Sequences of a step, which has one micro-batch."""
    precision: str
    """A name of decoder.WEIGHTS."""
    optimizer: str
    """A name of OPTIMIZERS."""
    fused_update: bool
    """The optimizer is one kernel; else each operation runs over lists of tensors."""
    kernel: str
    """Attention kernel."""
    recompute: tuple[str, int | None]
    """`none` or `full`, and for a block of layers how many."""
    dropout_fraction: float

    @property
    def compute(self) -> str | None:
        """Format of autocast; None where there is none."""
        return self.precision.removesuffix("-mixed") if self.precision.endswith("-mixed") else None

    def recomputed_layers(self, layers: int) -> int:
        """Layers, from the first, that run again in the backward pass [1]."""
        granularity, block = self.recompute
        return 0 if granularity == "none" else layers if block is None else min(block, layers)


def step_recipe(recipe: Mapping[str, Any]) -> StepRecipe:
    """The recipe of a step."""
    given = dict(recipe)
    read: dict[str, Callable[[Any], Any]] = {
        "precision": lambda value: _one_of("precision", value, tuple(WEIGHTS)),
        "optimizer": lambda value: _one_of("optimizer", value, OPTIMIZERS),
        "attention": lambda value: KERNELS[_one_of("attention", value, tuple(KERNELS))],
        "stack": _fuses,
        "recompute": _recompute,
    }
    found = {name: reading(given.pop(name, None) or _PRESETS[name]) for name, reading in read.items()}
    sizes = {name: given.pop(name, 1) for name in ("sequence_length", "micro_batch")}
    dropout = given.pop("dropout_fraction", 0.0)
    _refuse_rest(given)
    return StepRecipe(
        **sizes,
        precision=found["precision"],
        optimizer=found["optimizer"],
        fused_update=found["stack"],
        kernel=found["attention"],
        recompute=found["recompute"],
        dropout_fraction=dropout,
    )


def _one_of(field: str, value: Any, known: tuple[str, ...]) -> str:
    if value not in known:
        raise Refused(_problem(field, f"{value} is not run by this probe, which knows {', '.join(known)}"))
    return str(value)


def _problem(field: str, message: str) -> Problem:
    return Problem(
        field=f"recipe.{field}", code="recipe_not_run", message=message, fix="take this probe out, or change the field"
    )


def _fuses(stack: Any) -> bool:
    """Whether the update is one kernel, from the software; it has to be transformers' eager operations."""
    named = {"name": stack} if isinstance(stack, str) else dict(stack or {"name": "transformers"})
    usual = {"name": "transformers", "implementation": "eager", "cross_entropy": "eager"}
    for name, value in usual.items():
        if named.get(name, value) not in (value, None):
            raise Refused(_problem(f"stack.{name}", f"{named[name]} is not run by this probe, which runs {value}"))
    return bool(named.get("fused_update"))


def _recompute(rule: Any) -> tuple[str, int | None]:
    """Granularity and size of the block."""
    fields: dict[str, Any] = {"granularity": rule} if isinstance(rule, str) else dict(rule)
    granularity = _one_of("recompute.granularity", fields["granularity"], ("none", "full"))
    layers = fields.get("layers")
    if fields.get("method", "uniform") == "block":
        return granularity, layers
    if layers not in (None, 1):
        raise Refused(_problem("recompute.layers", f"groups of {layers} layers are not run by this probe"))
    return granularity, None


def _refuse_rest(given: Mapping[str, Any]) -> None:
    problems = [
        _problem(name, f"{name} = {value!r} is not run by this probe")
        for name, value in given.items()
        if name not in _NO_EFFECT and value not in _EMPTY and value != _USUAL.get(name)
    ]
    if problems:
        raise Refused(*problems)
