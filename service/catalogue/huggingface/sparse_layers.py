"""Which layers are sparse, and how many experts are in each, where lists, ends or counts say so?

Each builder reads the keys of its model type and returns Model fields.
"""

from service.catalogue.huggingface.config import Config
from service.catalogue.huggingface.layer_patterns import Builder, Fields, one_a_layer

DENSE, SPARSE = "dense", "sparse"


def dense_before(layers: int) -> Builder:
    """The leading layers are dense, unless mlp_layer_types lists them (GLM-4.7 Flash, Hunyuan 3, Mellum).

    Args:
        layers: how many [1]

    Returns:
        builder of first_k_dense_replace or mlp_layer_types
    """
    return lambda config: _listed(config) or {"first_k_dense_replace": min(layers, config.needed("num_hidden_layers"))}


def dense_before_said(config: Config) -> Fields:
    """The first_k_dense_replace leading layers are dense, unless mlp_layer_types lists them (EXAONE with experts).

    Args:
        config: the config

    Returns:
        first_k_dense_replace or mlp_layer_types
    """
    leading = config.field("first_k_dense_replace")
    return _listed(config) or {"first_k_dense_replace": leading}


def sparse_between(config: Config) -> Fields:
    """Every moe_layer_interval-th layer is sparse, from moe_layer_start_index to moe_layer_end_index (ERNIE 4.5).

    Args:
        config: the config

    Returns:
        first_k_dense_replace or mlp_layer_types
    """
    layers, period = config.needed("num_hidden_layers"), config.whole("moe_layer_interval", least=1)
    start, end = config.whole("moe_layer_start_index"), config.whole("moe_layer_end_index", least=-1)
    end = layers - 1 if end == -1 else end
    return _pattern([SPARSE if start <= i <= end and (i + 1) % period == 0 else DENSE for i in range(layers)])


def experts_of_hunyuan(config: Config) -> Fields:
    """Hunyuan's experts: numbers that may be lists with one item a layer, and a shared expert as wide as a routed one.

    Args:
        config: the config

    Returns:
        num_experts_per_tok and shared_expert_intermediate_size

    Raises:
        Refused: layers differ, or experts are not as wide as intermediate_size
    """
    width = config.needed("moe_intermediate_size")
    for key, only in (("moe_intermediate_size", width), ("num_shared_expert", 1)):
        if _in_every_layer(config, key) not in (None, only):
            wrong = f"is not {only}, and transformers builds one shared expert and routed ones of intermediate_size"
            raise config.problem(key, "unsupported_value", wrong, f"only {only} can be estimated")
    visits = {key: _in_every_layer(config, key) for key in ("moe_topk", "num_experts_per_tok")}
    given = [number for key, number in visits.items() if key in config.values] or [visits["moe_topk"]]
    if len(set(given)) > 1:
        raise config.problem("moe_topk", "contradiction", "differs from num_experts_per_tok", "leave one of them out")
    return {"num_experts_per_tok": given[0], "shared_expert_intermediate_size": width}


def shared_experts_of(key: str, *, least: int = 0) -> Builder:
    """Shared experts, each as wide as a routed one (ERNIE 4.5, EXAONE with experts, Hunyuan 3).

    Args:
        key: how many
        least: the fewest that the type's code can have [1]

    Returns:
        builder of shared_expert_intermediate_size
    """

    def build(config: Config) -> Fields:
        experts = config.whole_or_none(key, least=least) or 0
        return {"shared_expert_intermediate_size": experts * config.needed("moe_intermediate_size")}

    return build


def _in_every_layer(config: Config, key: str) -> int | None:
    """A number that may stand as a list with the same number for each layer."""
    if not isinstance(config.values.get(key), list):
        return config.whole_or_none(key)
    numbers = config.wholes(key) or ()
    if len(set(numbers)) != 1:
        wrong = "is not one number in every layer, and no layer kind describes that"
        raise config.problem(key, "unsupported_value", wrong, "give one number")
    return numbers[0]


def _listed(config: Config) -> Fields | None:
    """What mlp_layer_types says of each layer."""
    config.understood.add("mlp_layer_types")
    if not config.values.get("mlp_layer_types"):
        return None
    listed = config.field("mlp_layer_types")
    one_a_layer(config, "mlp_layer_types", len(listed), config.needed("num_hidden_layers"))
    return _pattern(list(listed))


def _pattern(types: list[str]) -> Fields:
    """A pattern, or the number of leading dense layers where it says no more than that."""
    leading = types.index(SPARSE) if SPARSE in types else len(types)
    return {"mlp_layer_types": types} if DENSE in types[leading:] else {"first_k_dense_replace": leading}
