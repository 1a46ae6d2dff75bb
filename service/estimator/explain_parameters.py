"""Why is each parameter count what it is?"""

from service.estimator.answer import Parameters
from service.estimator.explanation import Explanation, Inputs, explained
from service.estimator.ledger import Ops
from service.estimator.parameters import parameter_counts
from service.estimator.question import Method
from service.estimator.resolve import Resolved
from service.estimator.stage_answers import LoadedStage
from service.estimator.stages import rank_parameters, stage_total


def parameter_explanations(resolved: Resolved, stages: list[LoadedStage], parameters: Parameters) -> list[Explanation]:
    """Explanations of every count of the model and of its stages.

    Args:
        resolved: the question
        stages: its stages
        parameters: the counts

    Returns:
        one explanation a number
    """
    model, active = resolved.job.model, parameters.active_by_definition
    table: Inputs = {"vocab_size": model.vocab_size, "embedding_width": model.embedding_width}
    experts: Inputs = {
        "total": parameters.total,
        "routed_experts": parameters.routed_experts,
        "num_experts": model.num_experts,
        "num_experts_per_tok": model.num_experts_per_tok,
    }
    outside: Inputs = {
        "input_embedding": parameters.input_embedding,
        "position_embedding": parameters.position_embedding,
        "lm_head": parameters.lm_head,
    }
    sparse: Inputs = {"expert_width": model.expert_width, "num_experts": model.num_experts}
    shared: Inputs = {"shared_expert_intermediate_size": model.shared_expert_intermediate_size}
    depths: Inputs = {"depths": model.num_nextn_predict_layers, "own": parameters.multi_token_prediction}
    with_depths = parameters.total_with_multi_token_prediction
    method = _method(resolved.job.method)
    rows: tuple[tuple[str, int, Inputs], ...] = (
        ("total", parameters.total, _parts(resolved)),
        ("trained", parameters.trained, method),
        ("adapters", parameters.adapters, method),
        ("active", parameters.active, experts),
        ("active_by_definition.total", active.total, experts),
        ("active_by_definition.without_input_embedding", active.without_input_embedding, {**experts, **table}),
        ("active_by_definition.non_embedding", active.non_embedding, {**experts, **outside}),
        ("non_embedding", parameters.non_embedding, {"total": parameters.total, **outside}),
        ("input_embedding", parameters.input_embedding, table),
        ("position_embedding", parameters.position_embedding, {"rows": model.position_embedding_rows}),
        ("lm_head", parameters.lm_head, {**table, "tied": int(model.tie_word_embeddings)}),
        ("routed_experts", parameters.routed_experts, sparse),
        ("shared_experts", parameters.shared_experts, shared),
        ("multi_token_prediction", parameters.multi_token_prediction, depths),
        ("total_with_multi_token_prediction", with_depths, {"total": parameters.total, **depths}),
    )
    counted = [explained(f"parameters.{name}", value, parameter_counts, inputs) for name, value, inputs in rows]
    return [*counted, *_stages(stages, parameters)]


def _method(method: Method) -> Inputs:
    return {
        "method": method.name,
        "rank": method.rank,
        "targets": ", ".join(method.targets),
        "frozen": ", ".join(method.frozen),
        "frozen_layers": method.frozen_layers,
    }


def _parts(resolved: Resolved) -> Inputs:
    ledger = resolved.job.ledger
    layers = enumerate(zip(ledger.kind_counts(), ledger.kinds, strict=True))
    return {
        "embedding": _parameters_of(ledger.embedding),
        **{f"layer_kind_{kind}": _parameters_of(ops) * count for kind, (count, ops) in layers},
        "head": _parameters_of(ledger.head),
    }


def _parameters_of(ops: Ops) -> int:
    return sum(weight.parameters for op in ops for weight in op.weights if not weight.tied and weight.role != "adapter")


def _stages(stages: list[LoadedStage], parameters: Parameters) -> list[Explanation]:
    said = []
    for position, (one, counted) in enumerate(zip(stages, parameters.stages, strict=True)):
        path, layers = f"parameters.stages[{position}]", float(one.stage.layers)
        held: Inputs = {"dense": float(one.load.held.dense), "expert": float(one.load.held.expert)}
        said.append(explained(f"{path}.total", counted.total, stage_total, {"layers": layers}))
        said.append(explained(f"{path}.per_rank", counted.per_rank, rank_parameters, held))
    return said
