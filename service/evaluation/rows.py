"""Which question does a row ask? Its columns as the body that a caller would send, read at the same border."""

from dataclasses import replace

from service.calibration.tables import MeasuredRow, NotExpressible
from service.catalogue import Catalogue
from service.errors import Refused
from service.estimator.question import Question
from service.evaluation.drafts import (
    Draft,
    layers_by_cost,
    layers_spread,
    put_architecture,
    put_features,
    put_sharding,
    virtual_group,
)
from service.evaluation.frameworks import Framework, framework_of, network_bytes_per_s
from service.evaluation.gpus import as_said, gpu_slug, power_limit_watts, unsaid_power
from service.evaluation.megatron import (
    PATTERNS,
    Flags,
    flags_of,
    hybrid_fields,
    put_environment,
    put_flags,
    refuse_other_runs,
)
from service.evaluation.recipes import put_recipe
from service.validation.questions import read_question

COMMAND_LINE = "Megatron-LM (Megatron-Core)"
"""Framework whose rows carry the options of its command line, and whose silence means their defaults."""


def question_of(row: MeasuredRow, catalogue: Catalogue) -> tuple[Question, tuple[str, ...]]:
    """The question that a row asks."""
    draft = draft_of(row, catalogue)
    try:
        asked = read_question(draft.body(), catalogue)
    except Refused as refused:
        raise NotExpressible(reason_of(refused)) from None
    return replace(asked.question, gpu=as_said(asked.question.gpu, row)), tuple(draft.nearly)


def reason_of(refused: Refused) -> str:
    """Why a question was refused, short enough to count by."""
    first = refused.problems[0]
    return f"refused: {first.field} {first.code}"


def draft_of(row: MeasuredRow, catalogue: Catalogue) -> Draft:
    """The body that a row amounts to."""
    framework = framework_of(row)
    flags = flags_of(row)
    draft = Draft(stack=dict(framework.stack))
    _put_layout(row, framework, draft)
    put_recipe(row, framework, draft)
    put_architecture(_completed(row, flags), framework, draft)
    if row.text("framework") == COMMAND_LINE:
        refuse_other_runs(row.text("model"))
        put_environment(row.text("model"), draft)
        try:
            put_flags(flags, draft)
        except (KeyError, ValueError, TypeError, ArithmeticError):
            raise NotExpressible("extra_config_json: a value is not understood") from None
    _put_pipeline(row, framework, draft)
    put_features(row, draft)
    draft.nearly.extend(unsaid_power(row))
    if (limit := power_limit_watts(row)) is not None:
        draft.cluster["power_limit_watts"] = limit
    draft.cluster.update(
        gpu=gpu_slug(row, catalogue),
        gpus=_gpus(row, draft),
        gpus_per_node=row.count("gpus_per_node", 8),
    )
    if (rate := network_bytes_per_s(row)) is not None:
        draft.cluster["inter_node_bytes_per_s"] = rate
    return draft


def _completed(row: MeasuredRow, flags: Flags) -> MeasuredRow:
    """A row with the cells that follow from its options."""
    derived: dict[str, str] = {}
    for name in PATTERNS:
        if name in flags and not row.text("layers"):
            fields, _ = hybrid_fields(str(flags[name]), row.count("hidden"), flags)
            derived["layers"] = str(fields["num_hidden_layers"])
    return replace(row, cells={**row.cells, **derived}) if derived else row


def _put_layout(row: MeasuredRow, framework: Framework, draft: Draft) -> None:
    alone = row.whole("n_gpus") == 1
    unsaid = 1 if alone else None
    tensor, pipeline, context = row.count("tp", unsaid), row.count("pp", unsaid), row.count("cp", 1)
    draft.layout.update(
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        data=row.count("dp", unsaid),
        virtual_pipeline=row.count("vpp", 1),
        expert=row.count("ep", 1),
    )
    if (expert_tensor := row.whole("etp")) is not None:
        draft.layout["expert_tensor"] = expert_tensor
    stage = row.whole("zero_stage")
    if stage is None:
        stage = framework.zero_stages.get(row.text("training_kind"))
    if stage is not None:
        draft.layout["zero_stage"] = stage
    put_sharding(row, draft)
    if row.text("sequence_parallel") and tensor > 1:
        draft.layout["sequence_parallel"] = row.is_on("sequence_parallel")


def _gpus(row: MeasuredRow, draft: Draft) -> int:
    """GPUs of the run; too few of them for the expert groups only where the table assumed their number."""
    layout = draft.layout
    group = layout["expert"] * layout.get("expert_tensor", 1)
    ranks = layout["data"] * layout["context"] * layout["tensor"]
    if ranks % group and "GPU count assumed" in row.text("quality"):
        raise NotExpressible("n_gpus: only assumed, and too few for the expert groups")
    return row.count("n_gpus")


def _put_pipeline(row: MeasuredRow, framework: Framework, draft: Draft) -> None:
    layout, model = draft.layout, draft.model
    stages, layers = layout["pipeline"], model["num_hidden_layers"]
    parts = stages * layout.get("virtual_pipeline", 1)
    if not model.get("num_experts"):
        layout.pop("expert_tensor", None)
    if stages == 1:
        return
    if "embedding counted as a layer" in row.text("notes"):
        layout.update(embedding_in_split=True, loss_in_split=True)
    elif framework.stack["name"] == "nanotron":
        hidden = model["hidden_size"]
        layer = 4 * hidden * hidden + 3 * hidden * row.count("ffn_hidden")
        layout["stage_layers"] = list(layers_by_cost(layers, stages, layer, model["vocab_size"] * hidden))
    elif layers % parts and row.text("framework") != COMMAND_LINE:
        if framework.deals_rest_last and (layers + 2) % parts == 0:
            layout.update(embedding_in_split=True, loss_in_split=True)
        else:
            layout["stage_layers"] = list(layers_spread(layers, parts, rest_last=framework.deals_rest_last))
    if layout.get("virtual_pipeline", 1) > 1 and "virtual_group" not in layout:
        rounds = draft.recipe["global_batch"] // (draft.recipe["micro_batch"] * layout["data"])
        if group := virtual_group(rounds, stages):
            layout["virtual_group"] = group
