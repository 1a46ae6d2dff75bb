"""Memory that transformers' own classes hold while they train, in an environment with transformers.

Reads cases from stdin, writes for each the peaks of the first and the last step, ours and theirs.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
import transformers

from service.worker.decoder import Mark, Trainer, trainer_of
from service.worker.probes.step import counted_steps, step_peaks
from service.worker.supported import WEIGHTS, StepRecipe, step_model, step_recipe

STEPS = 2


class Theirs(Trainer):
    """A class of transformers in training; it computes its loss by itself."""

    def _loss(self, tell: Mark) -> torch.Tensor:
        with self._autocast():
            loss = self.model(input_ids=self.tokens, labels=self.tokens, use_cache=False).loss
        tell("loss", None)
        found: torch.Tensor = loss
        return found

    def _hooks(self, mark: Mark) -> Iterator[Any]:  # noqa: ARG002 - its layers have other names
        return iter(())


def config_of(model: Mapping[str, Any]) -> Any:
    """The config of transformers for a model."""
    shared = {"vocab_size": model["vocab_size"], "tie_word_embeddings": model["tie_word_embeddings"]}
    if model["normalization"] == "layernorm":
        return transformers.GPT2Config(
            **shared,
            n_embd=model["hidden_size"],
            n_layer=model["num_hidden_layers"],
            n_head=model["num_attention_heads"],
            n_inner=model["intermediate_size"],
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
    names = (
        "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size",
        "head_dim", "attention_bias",
    )  # fmt: skip
    kind = transformers.LlamaConfig if model["qk_norm"] == "none" else transformers.Qwen3Config
    return kind(**shared, **{name: model[name] for name in names if model[name] is not None})


def theirs(model: Mapping[str, Any], recipe: StepRecipe) -> Trainer:
    """A class of transformers in training."""
    config = config_of(model)
    config._attn_implementation = "eager" if recipe.kernel == "eager" else "sdpa"
    torch.set_default_dtype(getattr(torch, WEIGHTS[recipe.precision]))
    made = transformers.AutoModelForCausalLM.from_config(config).train()
    torch.set_default_dtype(torch.float32)
    return Theirs(made, model["vocab_size"], recipe, "cpu")


def peaks(make: Callable[[], Trainer]) -> list[int]:
    """Peaks of the first and of the last step."""
    _, moments = counted_steps(make, STEPS, "cpu")
    return [step_peaks(moments, step).peak_bytes for step in (1, STEPS)]


if __name__ == "__main__":
    told = []
    for case in json.load(sys.stdin):
        model, recipe = case["model"], step_recipe(case["recipe"])
        ours = partial(trainer_of, step_model(model), recipe, "cpu")
        told.append([peaks(ours), peaks(partial(theirs, model, recipe))])
    json.dump(told, sys.stdout)
