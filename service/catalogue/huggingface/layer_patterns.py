"""Which layers attend to what, and which are sparse, by the many ways in which configs say so?

Each builder reads the keys of its model type and returns Model fields.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from service.catalogue.huggingface.config import Config, defaults_of

Name = TypeVar("Name", bound=str)
Fields = dict[str, Any]
Builder = Callable[[Config], Fields]

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"


def shortest_period(pattern: Sequence[Name]) -> tuple[Name, ...]:
    """The shortest list that, repeated, begins with a pattern.

    Args:
        pattern: one item a layer

    Returns:
        its beginning

    >>> shortest_period(["a", "b", "a", "b", "a"])
    ('a', 'b')
    """
    length = len(pattern)
    return next(
        tuple(pattern[:period])
        for period in range(1, length + 1)
        if all(pattern[i] == pattern[i - period] for i in range(period, length))
    )


def window_everywhere(config: Config) -> Fields:
    """Every layer has the window, if there is one (Mistral, Mixtral, Phi-3).

    Args:
        config: the config

    Returns:
        sliding_window
    """
    return {"sliding_window": config.field("sliding_window")}


def switched_window(config: Config) -> Fields:
    """Every layer has the window, if use_sliding_window says so (Qwen3-MoE).

    Args:
        config: the config

    Returns:
        sliding_window
    """
    window = config.field("sliding_window")
    return {"sliding_window": window if config.flag("use_sliding_window") else None}


def window_from_layer(config: Config) -> Fields:
    """Layers from max_window_layers on have the window, if it is switched on (Qwen2, Qwen3).

    Args:
        config: the config

    Returns:
        layer_types and sliding_window
    """
    switched, first = config.flag("use_sliding_window"), config.whole("max_window_layers")
    layers = range(config.field("num_hidden_layers"))
    return windowed(config, [SLIDING if switched and layer >= first else FULL for layer in layers])


def window_below_layer(config: Config) -> Fields:
    """Every second layer below max_window_layers has the window, if it is switched on (Qwen2-MoE).

    Args:
        config: the config

    Returns:
        layer_types and sliding_window
    """
    switched, end = config.flag("use_sliding_window"), config.whole("max_window_layers")
    layers = range(config.field("num_hidden_layers"))
    has_window = [switched and layer < end and layer % 2 == 0 for layer in layers]
    return windowed(config, [SLIDING if one else FULL for one in has_window])


def alternating_window(config: Config) -> Fields:
    """Every second layer has the window, the first one too (Gemma 2, gpt-oss).

    Args:
        config: the config

    Returns:
        layer_types and sliding_window
    """
    layers = range(config.field("num_hidden_layers"))
    return windowed(config, [FULL if layer % 2 else SLIDING for layer in layers])


def window_without_rotation(config: Config) -> Fields:
    """Layers without rotary positions have the window, if it is switched on (SmolLM3).

    Args:
        config: the config

    Returns:
        layer_types and sliding_window
    """
    switched = config.flag("use_sliding_window") and config.field("sliding_window") is not None
    rotary = _rotary_layers(config)
    return windowed(config, [SLIDING if switched and not turns else FULL for turns in rotary])


def chunks_with_rotation(config: Config) -> Fields:
    """Layers with rotary positions attend inside chunks (Llama 4).

    Args:
        config: the config

    Returns:
        layer_types and attention_chunk_size
    """
    turning = _rotary_layers(config)
    pattern = _layer_types(config, [CHUNKED if turns else FULL for turns in turning])
    chunk = config.field("attention_chunk_size")
    if chunk is None:
        pattern = [FULL] * len(pattern)
    return {"layer_types": pattern, "attention_chunk_size": chunk}


def sparse_every_nth(config: Config) -> Fields:
    """Every moe_layer_freq-th layer is sparse, from the first one on (DeepSeek).

    Args:
        config: the config

    Returns:
        mlp_layer_types
    """
    period = config.whole("moe_layer_freq", least=1)
    layers = range(config.field("num_hidden_layers"))
    return {"mlp_layer_types": ["dense" if layer % period else "sparse" for layer in layers]}


def sparse_but_listed(config: Config) -> Fields:
    """Every decoder_sparse_step-th layer is sparse, but those of mlp_only_layers (Qwen2-MoE, Qwen3-MoE).

    Args:
        config: the config

    Returns:
        mlp_layer_types
    """
    period, listed = config.whole("decoder_sparse_step", least=1), config.wholes("mlp_only_layers")
    dense = set(defaults_of(config.dialect.model_type)["mlp_only_layers"] or () if listed is None else listed)
    layers = range(config.field("num_hidden_layers"))
    return {
        "mlp_layer_types": [
            "sparse" if layer not in dense and (layer + 1) % period == 0 else "dense" for layer in layers
        ]
    }


def sparse_if_listed(config: Config) -> Fields:
    """Layers of moe_layers are sparse, or every interleave_moe_layer_step-th (Llama 4).

    Args:
        config: the config

    Returns:
        mlp_layer_types
    """
    period, listed = config.whole("interleave_moe_layer_step", least=1), config.wholes("moe_layers")
    layers = range(config.field("num_hidden_layers"))
    sparse = set(range(period - 1, len(layers), period) if listed is None else listed)
    return {"mlp_layer_types": ["sparse" if layer in sparse else "dense" for layer in layers]}


def _rotary_layers(config: Config) -> list[bool]:
    """Which layers turn their queries; `no_rope_layers` says 1 where they do."""
    period, listed = config.whole("no_rope_layer_interval", least=1), config.wholes("no_rope_layers")
    layers = config.field("num_hidden_layers")
    if not listed:
        return [(layer + 1) % period != 0 for layer in range(layers)]
    one_a_layer(config, "no_rope_layers", len(listed), layers)
    return [bool(item) for item in listed]


def windowed(config: Config, pattern: list[str]) -> Fields:
    """Layers as the config lists them, else as the type's own rule says, and the length of their window.

    A window of 0 is how transformers saves a window that is switched off.

    Args:
        config: the config
        pattern: what the type's rule says of each layer

    Returns:
        layer_types and sliding_window
    """
    pattern, said = _layer_types(config, pattern), config.values.get("sliding_window")
    if SLIDING not in pattern and type(said) is int and said == 0:
        config.understood.add("sliding_window")
        return {"layer_types": pattern}
    window = config.field("sliding_window")
    if SLIDING in pattern and window is None:
        raise config.problem("sliding_window", "required", "is missing, and some layers slide", "give the window")
    return {"layer_types": pattern, "sliding_window": window}


def _layer_types(config: Config, otherwise: list[str]) -> list[str]:
    """What `layer_types` says of each layer, else what the type's own rule says."""
    config.understood.add("layer_types")
    if not config.values.get("layer_types"):
        return otherwise
    listed = config.field("layer_types")
    one_a_layer(config, "layer_types", len(listed), config.field("num_hidden_layers"))
    return list(listed)


def one_a_layer(config: Config, key: str, items: int, layers: int) -> None:
    """Refuse a list that does not have one item a layer.

    Args:
        config: the config
        key: where the list stands
        items: its length [1]
        layers: layers of the model [1]

    Raises:
        Refused: the two differ
    """
    if items != layers:
        wrong = f"says {items} layers, and the model has {layers}"
        raise config.problem(key, "contradiction", wrong, "give one item a layer")
