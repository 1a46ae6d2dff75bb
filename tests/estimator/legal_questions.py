"""Random questions that break no rule: every axis, ZeRO stage and choice of the default stack, every model family."""

from dataclasses import replace
from typing import get_args

from hypothesis import strategies as st

from service.estimator import Layout, Model, Question, Recipe
from service.estimator.build import recurrences_of
from service.estimator.names import MatrixName, OffloadName, OptimizerName
from service.estimator.question import DocumentLength, Method
from tests.ask import question
from tests.estimator.small_models import FAMILIES

PRECISIONS = ("fp32", "fp16-mixed", "bf16", "bf16-mixed", "fp8-blockwise")


@st.composite
def layouts(draw: st.DrawFn, model: Model) -> Layout:
    """Degrees that are powers of two divide each other, and the small models, wherever the rules ask for it."""
    data, tensor, pipeline = (draw(st.sampled_from((1, 2, 4))) for _ in range(3))
    context = 1 if recurrences_of(model) else draw(st.sampled_from((1, 2, 4)))
    chunks = [v for v in (1, 2) if v == 1 or (pipeline > 1 and model.num_hidden_layers % (pipeline * v) == 0)]
    experts = [e for e in (1, 2, 4, 8) if data * context * tensor % e == 0] if model.num_experts else [1]
    virtual = draw(st.sampled_from(chunks))
    schedules = ("1f1b", "gpipe", "zero-bubble", *(("dualpipe",) if pipeline != 1 else ()))
    return Layout(
        data=data,
        tensor=tensor,
        context=context,
        pipeline=pipeline,
        virtual_pipeline=virtual,
        expert=draw(st.sampled_from(experts)),
        zero_stage=draw(st.sampled_from((0, 1, 2, 3))),
        context_method=draw(st.sampled_from(("ring", "all-gather", "ulysses"))),
        schedule="interleaved-1f1b" if virtual > 1 else draw(st.sampled_from(schedules)),
        offload=draw(st.sampled_from(get_args(OffloadName))),
    )


TARGETS: tuple[tuple[MatrixName, ...], ...] = (("q_proj", "v_proj"), ("o_proj", "up_proj", "down_proj"))


@st.composite
def methods(draw: st.DrawFn, model: Model, layout: Layout) -> Method:
    """Full training, first layers and tables frozen, or adapters; schedules that split the backward pass train all."""
    whole = Method(name="full")
    if layout.schedule in ("zero-bubble", "dualpipe"):
        return whole
    layers = draw(st.integers(0, model.num_hidden_layers - 1))
    choices = [whole, Method(name="full", frozen=("embedding", "head"), frozen_layers=layers)]
    if not model.num_nextn_predict_layers:
        targets = draw(st.sampled_from(TARGETS))
        choices.append(Method(name="lora", rank=draw(st.sampled_from((1, 16))), targets=targets))
    return draw(st.sampled_from(choices))


HISTOGRAMS: tuple[tuple[DocumentLength, ...], ...] = (
    (),
    (DocumentLength(tokens=300, count=20), DocumentLength(tokens=5000, count=3)),
)


@st.composite
def recipes(draw: st.DrawFn, model: Model, layout: Layout) -> Recipe:
    """A batch that fills the pipeline in whole groups, and any choice of numbers, optimizer, recompute and method."""
    lengths = draw(st.sampled_from(HISTOGRAMS))
    micro_batch = draw(st.sampled_from((1, 2, 3)))
    groups = 2 if layout.schedule == "dualpipe" else 1
    accumulation = layout.pipeline * groups * draw(st.sampled_from((1, 2, 5)))
    return Recipe(
        sequence_length=draw(st.sampled_from((1024, 4096, 8192))),
        micro_batch=micro_batch,
        global_batch=micro_batch * (layout.data or 1) * accumulation,
        training_tokens=draw(st.sampled_from((None, 1e11, 1e13))),
        precision=draw(st.sampled_from(PRECISIONS)),
        optimizer=draw(st.sampled_from(get_args(OptimizerName))),
        recompute=draw(st.sampled_from(("none", "selective", "full"))),
        attention=draw(st.sampled_from(("eager", "flash"))),
        dropout_fraction=draw(st.sampled_from((0.0, 0.1))),
        method=draw(methods(model, layout)),
        document_lengths=lengths,
        batching=draw(st.sampled_from(("packed", "padded"))) if lengths else "packed",
    )


@st.composite
def questions(draw: st.DrawFn) -> Question:
    """One question of any family."""
    model = draw(st.sampled_from(tuple(FAMILIES.values())))
    layout = draw(layouts(model))
    gpus = (layout.data or 1) * layout.tensor * layout.context * layout.pipeline
    return question(model, draw(recipes(model, layout)), layout, gpus=gpus)


def with_recipe(asked: Question, **changes: object) -> Question:
    """The question with some fields of the recipe changed."""
    return replace(asked, recipe=replace(asked.recipe, **changes))  # type: ignore[arg-type]  # fields by name


def with_layout(asked: Question, **changes: object) -> Question:
    """The question with some fields of the layout changed."""
    return replace(asked, layout=replace(asked.layout, **changes))  # type: ignore[arg-type]  # fields by name
