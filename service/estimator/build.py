"""Which operations make up this model? From the model's fields and the recipe's setting to a ledger."""

from service.estimator.feed_forward import feed_forward_ops
from service.estimator.layers.attention import attention_ops
from service.estimator.layers.embedding import embedding_ops
from service.estimator.layers.experts import expert_ops
from service.estimator.layers.head import depth_embedding_ops, depth_ops, head_ops
from service.estimator.layers.latent_attention import latent_attention_ops
from service.estimator.ledger import GROUP, Ledger, Ops
from service.estimator.model import Model
from service.estimator.names import LayerType, MlpType
from service.estimator.norm import norm_op, residual_op
from service.estimator.setting import Setting


def layer_type(model: Model, layer: int) -> LayerType:
    """Attention of one layer: from the model's repeating pattern, else windowed if it has a window, else full.

    Args:
        model: the model
        layer: layer, from 0 [1]

    Returns:
        full, sliding or chunked
    """
    if model.layer_types:
        return model.layer_types[layer % len(model.layer_types)]
    return "full_attention" if model.sliding_window is None else "sliding_attention"


def mlp_type(model: Model, layer: int) -> MlpType:
    """MLP of one layer: dense for the leading layers, then the model's pattern, else sparse if it has experts.

    Args:
        model: the model
        layer: layer, from 0 [1]

    Returns:
        dense or sparse
    """
    if not model.num_experts or layer < model.first_k_dense_replace:
        return "dense"
    if model.mlp_layer_types:
        return model.mlp_layer_types[layer % len(model.mlp_layer_types)]
    return "sparse"


def layer_ops(model: Model, attention: LayerType, mlp: MlpType, setting: Setting) -> Ops:
    """Operations of one whole transformer layer.

    Args:
        model: the model
        attention: attention of the layer
        mlp: MLP of the layer
        setting: how operations are carried out

    Returns:
        norms, attention, MLP and residual additions
    """
    attend = latent_attention_ops if model.kv_lora_rank is not None else attention_ops
    branch = (
        expert_ops(model, setting)
        if mlp == "sparse"
        else feed_forward_ops(model, setting, width=model.intermediate_size or 0)
    )
    beside = (GROUP,) if model.parallel_attention else ()
    second = (norm_op("mlp.norm", model, setting, reads=beside),) if model.norms_per_layer > 1 else ()
    after_attention = (norm_op("attention.post_norm", model, setting, feeds_matrix=False),)
    after_mlp = (norm_op("mlp.post_norm", model, setting, feeds_matrix=False),)
    return (
        norm_op("attention.norm", model, setting),
        *attend(model, attention, setting),
        *(after_attention if model.norms_per_layer == 4 else ()),
        residual_op("attention.residual", model, setting),
        *second,
        *branch,
        *(after_mlp if model.norms_per_layer == 4 else ()),
        residual_op("mlp.residual", model, setting),
    )


def build_ledger(model: Model, setting: Setting) -> Ledger:
    """The table of operations of a model: each distinct kind of layer once.

    Args:
        model: the model
        setting: how operations are carried out

    Returns:
        the ledger of one sequence
    """
    shapes = [(layer_type(model, i), mlp_type(model, i)) for i in range(model.num_hidden_layers)]
    distinct = list(dict.fromkeys(shapes))
    kinds = tuple(layer_ops(model, attention, mlp, setting) for attention, mlp in distinct)
    has_depths = model.num_nextn_predict_layers > 0
    return Ledger(
        embedding=embedding_ops(model, setting),
        kinds=kinds,
        sparse=tuple(mlp == "sparse" for _, mlp in distinct),
        layer_kinds=tuple(distinct.index(shape) for shape in shapes),
        depths=model.num_nextn_predict_layers,
        depth=depth_ops(model, setting) if has_depths else (),
        depth_kind=distinct.index(shapes[-1]),
        head=(*head_ops(model, setting), *(depth_embedding_ops(model) if has_depths else ())),
    )
