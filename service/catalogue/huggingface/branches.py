"""How wide and how many are the parts of a layer, where a config says it in its own way?

Each builder reads the keys of its model type and returns Model fields.
"""

from service.catalogue.huggingface.config import Config
from service.catalogue.huggingface.layer_patterns import Builder, Fields


def positions(*, extra: int = 0) -> Builder:
    """A learned position table as long as the longest sequence (GPT-2, OPT).

    Args:
        extra: rows beyond that [1]

    Returns:
        builder of position_embedding_rows
    """
    return lambda config: {"position_embedding_rows": config.needed("max_position_embeddings") + extra}


def inner_width(key: str | None = None) -> Builder:
    """An MLP four times as wide as the residual stream, unless a key says otherwise (GPT-2, BLOOM, Falcon).

    Args:
        key: where another width would stand; None where the type has no such key (GPT)

    Returns:
        builder of intermediate_size
    """

    def build(config: Config) -> Fields:
        said = config.whole_or_none(key, least=1) if key else None
        return {"intermediate_size": said or 4 * config.needed("hidden_size")}

    return build


def qk_norm(key: str, kind: str) -> Builder:
    """A norm on queries and keys, if a key says so (Command R, GLM-4.5, Llama 4, StableLM).

    Args:
        key: true or false
        kind: the norm that the type has then

    Returns:
        builder of qk_norm
    """
    return lambda config: {"qk_norm": kind if config.flag(key) else "none"}


def parallel_residual(*, norms: int) -> Builder:
    """Attention and MLP side by side, if use_parallel_residual says so (GPT-NeoX, StableLM).

    Args:
        norms: norms of such a layer [1]

    Returns:
        builder of parallel_attention and norms_per_layer
    """

    def build(config: Config) -> Fields:
        parallel = config.flag("use_parallel_residual")
        return {"parallel_attention": parallel, "norms_per_layer": norms if parallel else 2}

    return build


def opt_norms(config: Config) -> Fields:
    """OPT's norms: before the branches or after them, with numbers to train or without.

    Args:
        config: the config

    Returns:
        normalization and final_norm
    """
    before, removed = config.flag("do_layer_norm_before"), config.flag("_remove_final_layer_norm")
    trained = config.flag("layer_norm_elementwise_affine")
    return {"normalization": "layernorm" if trained else "nonparametric", "final_norm": before and not removed}


def multi_query(config: Config) -> Fields:
    """One key and value head, if multi_query says so, else as many as query heads (StarCoder).

    Args:
        config: the config

    Returns:
        num_key_value_heads
    """
    return {"num_key_value_heads": 1 if config.flag("multi_query") else None}


def square_output(config: Config) -> Fields:
    """Heads that fill the residual stream exactly, because the output projection is square (Helium).

    Args:
        config: the config

    Returns:
        head_dim

    Raises:
        Refused: heads of another width together
    """
    heads, hidden = config.needed("num_attention_heads"), config.needed("hidden_size")
    width = config.field("head_dim") or hidden // heads
    if heads * width != hidden:
        wrong = f"makes {heads} heads of {width} numbers, and the output projection reads {hidden}"
        raise config.problem("head_dim", "contradiction", wrong, "leave it out")
    return {"head_dim": width}


def value_width(config: Config) -> Fields:
    """Value heads that fill the residual stream together, unless a key says their width (MiniCPM3).

    Args:
        config: the config

    Returns:
        v_head_dim
    """
    hidden, heads = config.needed("hidden_size"), config.whole("num_attention_heads", least=1)
    return {"v_head_dim": config.field("v_head_dim") or hidden // heads}


def post_norms(key: str) -> Builder:
    """Norms after both branches too, if a key says so (HyperCLOVA X).

    Args:
        key: true or false

    Returns:
        builder of norms_per_layer
    """
    return lambda config: {"norms_per_layer": 4 if config.flag(key) else 2}


def command_with_experts(config: Config) -> Fields:
    """RMSNorm where the config has its epsilon, else LayerNorm; dense layers as wide as an expert (Command A, sparse).

    Args:
        config: the config

    Returns:
        normalization and intermediate_size
    """
    has_rms = config.values.get("rms_norm_eps") is not None
    dense = config.whole_or_none("prefix_dense_intermediate_size", least=1)
    return {
        "normalization": "rmsnorm" if has_rms else "layernorm_no_bias",
        "intermediate_size": dense or config.needed("moe_intermediate_size"),
    }


def falcon_heads(config: Config) -> Fields:
    """Falcon's key and value heads: as said in the new architecture, else one or as many as query heads.

    Args:
        config: the config

    Returns:
        num_key_value_heads
    """
    said, one = config.whole_or_none("num_kv_heads", least=1), config.flag("multi_query")
    if config.flag("new_decoder_architecture"):
        return {"num_key_value_heads": said}
    return {"num_key_value_heads": 1 if one else None}


def falcon_norms(config: Config) -> Fields:
    """Falcon's branches, side by side or not, and the norms before them.

    Args:
        config: the config

    Returns:
        parallel_attention and norms_per_layer
    """
    parallel, new = config.flag("parallel_attn"), config.flag("new_decoder_architecture")
    norms = config.whole_or_none("num_ln_in_parallel_attn", least=1) or (2 if new else 1)
    return {"parallel_attention": parallel, "norms_per_layer": 2 if not parallel or norms == 2 else 1}


def mpt_branches(config: Config) -> Fields:
    """MPT's MLP width and biases, as llm-foundry builds them.

    Args:
        config: the config

    Returns:
        intermediate_size, normalization and biases
    """
    biased, ratio = not config.flag("no_bias"), config.whole("expansion_ratio", least=1)
    if biased or ratio != 4:
        config.notes.append("MLP width and biases are as llm-foundry builds them; transformers ignores these keys")
    return {
        "intermediate_size": ratio * config.field("hidden_size"),
        "normalization": "layernorm" if biased else "layernorm_no_bias",
        "attention_bias": biased,
        "mlp_bias": biased,
    }


def shared_experts(config: Config) -> Fields:
    """Shared experts, each as wide as a routed one (DeepSeek, GLM-4.5).

    Args:
        config: the config

    Returns:
        shared_expert_intermediate_size
    """
    experts = config.whole_or_none("n_shared_experts") or 0
    return {"shared_expert_intermediate_size": experts * config.needed("moe_intermediate_size")}
