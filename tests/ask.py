"""One question to the estimator in one call: what a test changes is written, the rest is a single H100."""

from typing import TypeVar

from service.estimator import Cluster, Estimate, Layout, Model, Question, Recipe, estimate
from service.estimator.samples import H100


def question(model: Model, recipe: Recipe, layout: Layout | None = None, *, gpus: int = 1) -> Question:
    """A question about H100 GPUs; the layout is left to its defaults where absent."""
    cluster = Cluster(gpu=H100.slug, gpus=gpus)
    return Question(model=model, recipe=recipe, layout=layout or Layout(), cluster=cluster, gpu=H100)


def ask(model: Model, recipe: Recipe, layout: Layout | None = None, *, gpus: int = 1) -> Estimate:
    """The whole answer to that question."""
    return estimate(question(model, recipe, layout, gpus=gpus))


def lines(answer: Estimate, stage: int = 0) -> dict[str, float]:
    """Bytes of one rank of a stage by kind."""
    return {line.kind: line.bytes for line in answer.memory.stages[stage].lines}


def bytes_of(answer: Estimate, *kinds: str, stage: int = 0) -> float:
    """Bytes of one rank of a stage, those of the kinds together."""
    held = lines(answer, stage)
    return sum(held.get(kind, 0.0) for kind in kinds)


STATES = ("weights", "frozen_weights", "weight_copies", "gradients", "master_weights", "optimizer_states")
"""Kinds of memory kept for each parameter; quantisation scales stand apart."""


def model_of(parameters: int, *, hidden: int, layers: int, width: int) -> Model:
    """A Llama-like model with exactly so many parameters: the vocabulary takes what the layers leave."""
    heads = hidden // 100
    in_layers = layers * (4 * hidden**2 + 3 * hidden * width + 2 * hidden) + hidden
    vocabulary, rest = divmod(parameters - in_layers, hidden)
    if rest or vocabulary < 1:
        raise ValueError(f"{parameters} parameters cannot be met exactly by h = {hidden}, L = {layers}, f = {width}")
    return Model(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=width,
        tie_word_embeddings=True,
    )


def gpt(*, hidden: int, layers: int, heads: int, vocabulary: int, positions: int = 0) -> Model:
    """A GPT: plain MLP of four times the width, biases, layer norms, head tied to the embedding."""
    return Model(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        gated_mlp=False,
        tie_word_embeddings=True,
        attention_bias=True,
        mlp_bias=True,
        normalization="layernorm",
        position_embedding_rows=positions,
    )


Value = TypeVar("Value")


def known(value: Value | None) -> Value:
    """A value that is never None where a test asks for it."""
    assert value is not None
    return value
