"""Which layers have a window, where the type's code, a period or a list of its own says so?

Each builder reads the keys of its model type and returns Model fields. A list under `layer_types` always wins.
"""

from collections.abc import Callable
from typing import Any

from service.catalogue.huggingface.config import MOST_LAYERS, Config, defaults_of
from service.catalogue.huggingface.layer_patterns import FULL, SLIDING, Builder, Fields, windowed

GLOBAL_AND_LOCAL = {"global": FULL, "local": SLIDING}
"""GPT-Neo's names for attention."""


def full_every(period: int, *, first: int) -> Builder:
    """All but every period-th layer have the window, whatever the config says (OLMo 3, Code World Model).

    Args:
        period: layers from one full layer to the next [1]
        first: the first full layer, from 0 [1]

    Returns:
        builder of layer_types and sliding_window
    """
    return lambda config: _unlisted(config, lambda layer, _: layer % period != first)


def window_but_every_nth(key: str) -> Builder:
    """All but every n-th layer have the window; where layers are listed, n may be text (EXAONE, Trinity).

    Args:
        key: where n stands

    Returns:
        builder of layer_types and sliding_window
    """

    def build(config: Config) -> Fields:
        config.understood.add(key)
        if config.values.get("layer_types"):
            return _unlisted(config, lambda *_: False)
        period = config.whole(key, least=1)
        return _unlisted(config, lambda layer, _: (layer + 1) % period != 0)

    return build


def window_after_layer(config: Config) -> Fields:
    """Layers from max_window_layers on have the window, if there is one (dots.llm1).

    Args:
        config: the config

    Returns:
        layer_types and sliding_window
    """
    first, has_window = config.whole("max_window_layers"), config.field("sliding_window") is not None
    return _unlisted(config, lambda layer, _: has_window and layer >= first)


def window_if_any(config: Config) -> Fields:
    """Every layer has the window, if there is one, unless a list says otherwise (Ministral).

    Args:
        config: the config

    Returns:
        layer_types and sliding_window
    """
    has_window = config.field("sliding_window") is not None
    return _unlisted(config, lambda *_: has_window)


def window_if_listed(config: Config) -> Fields:
    """No layer has the window, unless a list says so (Mellum).

    Args:
        config: the config

    Returns:
        layer_types and sliding_window
    """
    return _unlisted(config, lambda *_: False)


def window_between_full_ends(config: Config) -> Fields:
    """The first two layers, every fourth one and the last are full, all others have the window (Flint).

    Args:
        config: the config

    Returns:
        layer_types and sliding_window
    """
    return _unlisted(config, lambda layer, layers: layer >= 2 and layer % 4 != 1 and layer < layers - 1)


def window_after_prefix(config: Config) -> Fields:
    """A period for the leading dense layers, then another for the sparse ones (Command A with experts).

    Args:
        config: the config

    Returns:
        layer_types and sliding_window
    """
    dense = config.whole("first_k_dense_replace")
    early = config.whole("prefix_dense_sliding_window_pattern", least=1)
    later = config.whole("sliding_window_pattern", least=1)
    return _unlisted(
        config, lambda layer, _: (layer + 1) % early != 0 if layer < dense else (layer - dense + 1) % later != 0
    )


def global_and_local(config: Config) -> Fields:
    """Layers by attention_types, a list of names and of how often they repeat: [[["global", "local"], 12]] (GPT-Neo).

    Args:
        config: the config

    Returns:
        layer_types and sliding_window

    Raises:
        Refused: no such list, or not as long as the model; attention_layers says otherwise
    """
    key, layers = "attention_types", config.needed("num_hidden_layers")
    if key not in config.values:
        config.assumed[key] = defaults_of(config.dialect.model_type)[key]
    groups = config.values.get(key) or defaults_of(config.dialect.model_type)[key]
    if not isinstance(groups, list) or not all(map(_is_group, groups)):
        wrong = 'is not a list like [[["global", "local"], 12]]'
        raise config.problem(key, "unsupported_value", wrong, "give names of layers and how often they repeat")
    named = sum(len(names) * times for names, times in groups)
    if named != layers:
        wrong = f"says {named} layers, and the model has {layers}"
        raise config.problem(key, "contradiction", wrong, "give one name a layer")
    names = [name for group, times in groups for name in group * times]
    config.understood |= {key, "attention_layers"}
    if config.values.get("attention_layers", names) != names:
        raise config.problem("attention_layers", "contradiction", f"differs from {key}", "leave it out")
    window = config.field("sliding_window")
    return {"layer_types": [GLOBAL_AND_LOCAL[name] for name in names], "sliding_window": window}


def _is_group(group: Any) -> bool:
    """Whether an item of attention_types is a list of known names and how often it repeats."""
    if not isinstance(group, list) or len(group) != 2:
        return False
    names, times = group
    known = isinstance(names, list) and all(name in tuple(GLOBAL_AND_LOCAL) for name in names)
    return known and type(times) is int and 0 <= times <= MOST_LAYERS


def _unlisted(config: Config, has_window: Callable[[int, int], bool]) -> Fields:
    """What `layer_types` lists, else the window where a layer of so many layers has it."""
    layers = config.needed("num_hidden_layers")
    return windowed(config, [SLIDING if has_window(layer, layers) else FULL for layer in range(layers)])
