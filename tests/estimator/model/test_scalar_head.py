"""A scalar head in place of logits: reward models, and the critics of PPO and GRPO."""

from dataclasses import replace

import pytest

from service.estimator import Layout, Model, Recipe
from service.estimator.question import Method, StackName
from tests.ask import ask, lines
from tests.cases import each_case
from tests.estimator.small_models import DENSE, LATENT, TIED

STACKS: tuple[StackName, ...] = ("megatron-core", "torchtitan", "fsdp1", "deepspeed", "transformers")


@each_case(("model", "stack"), [(model, stack) for model in (DENSE, TIED, LATENT) for stack in STACKS])
def test_a_scalar_head_has_no_logits_and_one_row_of_weights(model: Model, stack: StackName) -> None:
    recipe = Recipe(sequence_length=4096, micro_batch=2, global_batch=8, stack=stack)
    scored, plain = (ask(one, recipe, gpus=4) for one in (replace(model, scalar_head=True), model))
    head = model.vocab_size * model.hidden_size
    own = 0 if model.tie_word_embeddings else head
    assert scored.parameters.total == plain.parameters.total - own + model.hidden_size
    assert scored.parameters.lm_head == model.hidden_size
    assert scored.parameters.multi_token_prediction == 0
    tokens = 8 * 4096
    if not plain.parameters.multi_token_prediction:
        lost = 6 * tokens * (head - model.hidden_size)
        assert plain.flop.per_step_flop - scored.flop.per_step_flop == lost
    stream = 2 * 4096 * model.hidden_size * 2  # what is live there is the gradient of the stream
    assert lines(scored).get("logits", 0.0) < 1.01 * stream
    assert scored.memory.allocated_peak_bytes.value < plain.memory.allocated_peak_bytes.value
    assert scored.step.step_seconds.value < plain.step.step_seconds.value


def test_a_scalar_head_is_on_the_last_stage_and_is_trained_beside_adapters() -> None:
    model = replace(DENSE, scalar_head=True)
    answer = ask(model, Recipe(sequence_length=1024, global_batch=8), Layout(pipeline=2), gpus=2)
    first, last = answer.parameters.stages
    assert first.total - last.total == DENSE.vocab_size * DENSE.hidden_size - 2 * DENSE.hidden_size
    adapted, beside = (
        ask(model, Recipe(sequence_length=1024, stack="transformers", method=Method(name="lora", whole=parts)))
        for parts in ((), ("head",))
    )
    assert beside.parameters.trained - adapted.parameters.trained == pytest.approx(DENSE.hidden_size)
