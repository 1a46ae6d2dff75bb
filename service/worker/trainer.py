"""A training step: forward pass, loss, backward pass, clipping and update, with a mark after each."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from service.estimator.question import Model
from service.worker.decoder import Running, build, causal_loss
from service.worker.supported import StepRecipe

MOST_GRADIENT_NORM = 1.0
"""Norm to which gradients are clipped. Source: transformers 5.23.0 TrainingArguments.max_grad_norm."""

LEARNING_RATE = 1e-4
"""Step size; without effect on sizes. Source: a choice."""

FORMATS = {"fp16": torch.float16, "bf16": torch.bfloat16}


Mark = Callable[[str, int | None], None]
"""Called at each moment of a step, with its name and its layer."""


class Trainer:
    """A model in training on one device."""

    def __init__(self, model: nn.Module, vocabulary: int, recipe: StepRecipe, device: str) -> None:
        self.model, self.vocabulary, self.recipe, self.device = model, vocabulary, recipe, torch.device(device)
        self.parameters: list[nn.Parameter] = list(model.parameters())
        self.optimizer = self._optimizer()
        self.scaler = torch.amp.GradScaler(self.device.type) if recipe.compute == "fp16" else None
        shape = (recipe.micro_batch, recipe.sequence_length)
        self.tokens = torch.randint(vocabulary, shape, device=self.device)

    def _optimizer(self) -> Any:
        options = {"fused": True} if self.recipe.fused_update else {"foreach": True}
        if self.recipe.optimizer == "sgd-momentum":
            return torch.optim.SGD(self.parameters, lr=LEARNING_RATE, momentum=0.9, **options)
        return torch.optim.AdamW(self.parameters, lr=LEARNING_RATE, weight_decay=0.1, **options)

    def step(self, mark: Mark | None = None) -> None:
        """Train on the batch once."""
        hooks = list(self._hooks(mark)) if mark else []
        mark_moment = mark or (lambda _moment, _layer: None)
        mark_moment("start", None)
        loss = self._loss(mark_moment)
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        mark_moment("backward", None)
        self._update(mark_moment)
        mark_moment("end", None)
        for hook in hooks:
            hook.remove()

    def _loss(self, mark: Mark) -> torch.Tensor:
        with self._autocast():
            logits = self.model.logits(self.tokens)
            mark("forward", None)
            loss = causal_loss(logits, self.tokens, self.vocabulary)
        mark("loss", None)
        return loss

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.recipe.compute is None:
            return nullcontext()
        chosen: AbstractContextManager[Any] = torch.autocast(self.device.type, FORMATS[self.recipe.compute])
        return chosen

    def _update(self, mark: Mark) -> None:
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.parameters, MOST_GRADIENT_NORM, foreach=True)
        mark("clip", None)
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        mark("optimizer", None)
        self.optimizer.zero_grad(set_to_none=True)

    def _hooks(self, mark: Mark) -> Iterator[Any]:
        """Marks after each layer's forward pass, and after the gradient of its first weights, the last of its pass."""
        for index, layer in enumerate(self.model.layers):
            yield layer.register_forward_hook(lambda *_, at=index: mark("forward", at))
            first = next(layer.parameters())
            yield first.register_post_accumulate_grad_hook(lambda _, at=index: mark("backward", at))

    def tensor_bytes(self) -> dict[str, int]:
        """Bytes of tensors by category now."""
        states = [value for state in self.optimizer.state.values() for value in state.values()]
        tensors = {
            "parameters_bytes": self.parameters,
            "gradients_bytes": [one.grad for one in self.parameters if one.grad is not None],
            "optimizer_states_bytes": [one for one in states if isinstance(one, torch.Tensor)],
            "input_bytes": [self.tokens],
        }
        return {category: sum(tensor.nbytes for tensor in own) for category, own in tensors.items()}


def trainer_of(model: Model, recipe: StepRecipe, device: str) -> Trainer:
    """A model of random weights in training on one device."""
    running = Running(
        kernel=recipe.kernel,
        dropout_fraction=recipe.dropout_fraction,
        recomputed_layers=recipe.recomputed_layers(model.num_hidden_layers),
    )
    return Trainer(build(model, running, recipe.precision, device), model.vocab_size, recipe, device)
