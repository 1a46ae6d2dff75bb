"""What does a norm hold, keep and move?"""

from service.estimator.ledger import EVERYTHING, Op, Saved, Split, Weight
from service.estimator.model import Model
from service.estimator.names import Normalization
from service.estimator.setting import Setting

_VECTORS: dict[Normalization, int] = {"rmsnorm": 1, "layernorm": 2, "layernorm_no_bias": 1, "nonparametric": 0}


def norm_weights(normalization: Normalization, width: int) -> tuple[Weight, ...]:
    """Trained vectors of one norm: a scale, a shift, both or none.

    Args:
        normalization: kind of norm
        width: numbers it normalises [1]

    Returns:
        its weights, held whole by every rank
    """
    return tuple(Weight(1, width, role="norm") for _ in range(_VECTORS[normalization]))


def norm_op(name: str, model: Model, setting: Setting, *, readers: int = 1, reads: tuple[str, ...] = ()) -> Op:
    """One norm over the residual stream of one sequence.

    It keeps its input; what it feeds to a matrix product is kept too, and selective recompute of
    `layernorm` drops it. Unfused, six fp32 passes run, and a root mean square keeps an fp32 copy more: cast, square,
    mean, scale, cast back, weigh. A layer norm is one kernel of torch's everywhere; autocast hands it an fp32 stream.

    Args:
        name: what the norm stands before or after
        model: the model
        setting: how operations are carried out
        readers: matrix products that read its output, and keep it [1]
        reads: what it normalises, where that is not the result before it

    Returns:
        the operation

    Source:
        Korthikanti et al. 2022, arXiv:2205.05198, section 4.1 (4 s b h for two norms' inputs);
        transformers modeling_llama.LlamaRMSNorm for the unfused form: in fp32 the input and what is weighed, in half
        precision the input in fp32 and what is weighed, under autocast all in fp32; torch.nn.LayerNorm
    """
    numbers = setting.tokens * model.hidden_size
    kept = setting.element_bytes * numbers
    unfused = _unfused_bytes(model, setting) * numbers
    passes = 0 if setting.fused_norm else 6
    fed = setting.product_input_bytes(numbers, readers)
    output = (Saved(fed, Split.SEQUENCE, ("layernorm",), "next_weights"),) if readers else ()
    return Op(
        name=name,
        kind="elementwise",
        split=Split.SEQUENCE,
        weights=norm_weights(model.normalization, model.hidden_size),
        saved=(Saved(kept, Split.SEQUENCE), *((Saved(unfused, Split.SEQUENCE),) if unfused else ()), *output),
        moved_bytes=2 * kept + passes * 4 * numbers,
        modules=("layernorm",),
        reads=reads,
    )


def _unfused_bytes(model: Model, setting: Setting) -> int:
    """Bytes of each number that a norm keeps beside one activation of it."""
    if setting.fused_norm:
        return 0
    if model.normalization != "rmsnorm":
        return 2 if setting.casts_each_input else 0
    return 6 if setting.casts_each_input else 4


def residual_op(name: str, model: Model, setting: Setting) -> Op:
    """The addition of a branch to the residual stream, with the branch's dropout.

    Args:
        name: which branch
        model: the model
        setting: how operations are carried out

    Returns:
        the operation; it keeps only a one-byte dropout mask

    Source:
        Korthikanti et al. 2022, arXiv:2205.05198, section 4.1 (s b h for each dropout mask)
    """
    numbers = setting.tokens * model.hidden_size
    mask = (Saved(numbers, Split.SEQUENCE),) if setting.drops_out else ()
    return Op(
        name=name,
        kind="elementwise",
        split=Split.SEQUENCE,
        saved=mask,
        moved_bytes=3 * setting.element_bytes * numbers,
        reads=(EVERYTHING,),
    )
