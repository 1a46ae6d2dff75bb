"""Which of torchtitan's registered models is the one of a question? One row a model, by its sizes.

Source: torchtitan 0.2.2 and 0.3.0, models/llama3/__init__.py, models/qwen3/__init__.py and their config_registry.py.
"""

from dataclasses import dataclass

from service.estimator.question import Model


@dataclass(frozen=True, slots=True)
class Registered:
    """A model that torchtitan knows by name."""

    module: str
    """Its family: model.name up to 0.2, --module from 0.3 on."""
    flavor: str
    """Its size: model.flavor up to 0.2."""
    config: str
    """Its configuration: --config from 0.3 on; empty where there is none."""
    slug: str
    """Its name in the catalogue."""
    sizes: tuple[int, ...]
    """Layers, width, query heads, key and value heads, width of the MLP, rows of the embedding, experts."""


_LLAMA, _QWEN = 128_256, 151_936

REGISTERED = (
    Registered("llama3", "8B", "llama3_8b", "llama-3.1-8b", (32, 4096, 32, 8, 14336, _LLAMA, 0)),
    Registered("llama3", "70B", "llama3_70b", "llama-3.1-70b", (80, 8192, 64, 8, 28672, _LLAMA, 0)),
    Registered("llama3", "405B", "llama3_405b", "llama-3.1-405b", (126, 16384, 128, 8, 53248, _LLAMA, 0)),
    Registered("qwen3", "0.6B", "qwen3_0_6b", "qwen3-0.6b", (28, 1024, 16, 8, 3072, _QWEN, 0)),
    Registered("qwen3", "1.7B", "qwen3_1_7b", "qwen3-1.7b", (28, 2048, 16, 8, 6144, _QWEN, 0)),
    Registered("qwen3", "14B", "qwen3_14b", "qwen3-14b", (40, 5120, 40, 8, 17408, _QWEN, 0)),
    Registered("qwen3", "32B", "qwen3_32b", "qwen3-32b", (64, 5120, 64, 8, 25600, _QWEN, 0)),
    Registered("qwen3", "30B-A3B", "qwen3_30b_a3b", "qwen3-30b-a3b", (48, 2048, 32, 4, 6144, _QWEN, 128)),
)
"""The models that are looked for."""


def registered(model: Model) -> Registered | None:
    """The registered model that has the sizes of a model.

    Args:
        model: the model

    Returns:
        its row; None where none has
    """
    sizes = (
        model.num_hidden_layers,
        model.hidden_size,
        model.num_attention_heads,
        model.key_value_heads,
        model.intermediate_size or 0,
        model.vocab_size,
        model.num_experts,
    )
    family = "qwen3" if model.qk_norm == "per_head_dim" else "llama3"
    plain = model.kv_lora_rank is None and not model.layer_types and not model.sliding_window
    return next((row for row in REGISTERED if plain and (row.module, row.sizes) == (family, sizes)), None)


def registered_as(module: str, flavor: str) -> Registered | None:
    """The registered model of a name.

    Args:
        module: its family
        flavor: its size

    Returns:
        its row; None where it is not in the table
    """
    return next((row for row in REGISTERED if (row.module, row.flavor) == (module, flavor)), None)
