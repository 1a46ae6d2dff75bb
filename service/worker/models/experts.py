"""How does torch run a sparse MLP: router, routed experts in grouped products, shared experts?"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from service.worker.models.feed_forward import FeedForward
from service.worker.models.fields import ModelFields

DEVIATION = 0.02
"""Spread of weights; it changes no size. Source: transformers Qwen3MoeConfig.initializer_range."""


class GroupedProduct(torch.autograd.Function):
    """Rows times the matrix of their group, group after group; it keeps rows and matrices and no more."""

    @staticmethod
    def forward(context: Any, rows: torch.Tensor, matrices: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        """The products, in the order of the rows."""
        context.save_for_backward(rows, matrices, ends)
        found = rows.new_empty(rows.shape[0], matrices.shape[1])
        for group, (start, end) in enumerate(_spans(ends)):
            torch.mm(rows[start:end], matrices[group].t(), out=found[start:end])
        return found

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        """Gradients of the rows and of the matrices."""
        rows, matrices, ends = context.saved_tensors
        (given,) = gradients
        to_rows, to_matrices = torch.empty_like(rows), torch.zeros_like(matrices)
        for group, (start, end) in enumerate(_spans(ends)):
            torch.mm(given[start:end], matrices[group], out=to_rows[start:end])
            torch.mm(given[start:end].t(), rows[start:end], out=to_matrices[group])
        return to_rows, to_matrices, None


def _spans(ends: torch.Tensor) -> list[tuple[int, int]]:
    last = ends.tolist()
    return list(zip([0, *last[:-1]], last, strict=True))


def grouped_product(rows: torch.Tensor, matrices: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Rows times the matrix of their group: by torch's kernel where there is one, as transformers' grouped_mm does.

    Args:
        rows: rows in the order of their groups, n x inputs
        matrices: one a group, groups x outputs x inputs
        ends: row after the last of each group

    Returns:
        n x outputs
    """
    if torch.is_autocast_enabled(rows.device.type):
        target = torch.get_autocast_dtype(rows.device.type)
        rows, matrices = rows.to(target), matrices.to(target)
    kernel = getattr(functional, "grouped_mm", None)
    if kernel is not None and rows.is_cuda and rows.dtype is torch.bfloat16:
        found: torch.Tensor = kernel(rows, matrices.transpose(1, 2), offs=ends)
        return found
    product: torch.Tensor = GroupedProduct.apply(rows, matrices, ends)
    return product


class Router(nn.Module):
    """Which experts a token visits, and with what weight: transformers' Qwen3MoeTopKRouter."""

    def __init__(self, model: ModelFields) -> None:
        super().__init__()
        self.copies = model.num_experts_per_tok
        self.weight = nn.Parameter(torch.empty(model.num_experts, model.hidden_size))
        nn.init.normal_(self.weight, std=DEVIATION)

    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Weights and experts, tokens x visits."""
        choices = functional.linear(hidden, self.weight)
        likely = functional.softmax(choices, dtype=torch.float, dim=-1)
        weights, chosen = torch.topk(likely, self.copies, dim=-1)
        return (weights / weights.sum(dim=-1, keepdim=True)).to(choices.dtype), chosen


class Experts(nn.Module):
    """Routed experts, with shared ones beside them: transformers' Qwen2MoeSparseMoeBlock with grouped products."""

    def __init__(self, model: ModelFields) -> None:
        super().__init__()
        hidden, width, count = model.hidden_size, model.expert_width, model.num_experts
        inner = 2 * width if model.gated_mlp else width
        self.is_gated, self.count = model.gated_mlp, count
        self.router = Router(model)
        self.up_proj = nn.Parameter(torch.empty(count, inner, hidden))
        self.down_proj = nn.Parameter(torch.empty(count, hidden, width))
        shared = model.shared_expert_intermediate_size
        self.shared = FeedForward(model, shared) if shared else None
        self.shared_gate = nn.Linear(hidden, 1, bias=False) if model.shared_expert_gate else None
        for matrices in (self.up_proj, self.down_proj):
            nn.init.normal_(matrices, std=DEVIATION)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """What the experts add to the stream."""
        flat = hidden.reshape(-1, hidden.shape[-1])
        beside = None if self.shared is None else self.shared(flat)
        weights, chosen = self.router(flat)
        found = self._routed(flat, weights, chosen)
        if beside is not None:
            if self.shared_gate is not None:
                beside = functional.sigmoid(self.shared_gate(flat)) * beside
            found = found + beside
        return found.reshape(hidden.shape)

    def _routed(self, flat: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Results of the visited experts, weighed and added up: transformers' grouped_mm_experts_forward."""
        copies = chosen.shape[-1]
        in_order, order = torch.sort(chosen.reshape(-1))
        rows = flat[order // copies]
        shares = weights.reshape(-1)[order]
        ends = torch.searchsorted(in_order, torch.arange(self.count, device=flat.device), right=True).int()
        inner = grouped_product(rows, self.up_proj, ends)
        if self.is_gated:
            gate, up = inner.chunk(2, dim=-1)
            active = functional.silu(gate) * up
        else:
            active = functional.gelu(inner)
        weighed = grouped_product(active, self.down_proj, ends) * shares.unsqueeze(-1)
        back = torch.empty_like(order)
        back[order] = torch.arange(order.numel(), device=flat.device)
        return weighed[back].view(-1, copies, flat.shape[-1]).sum(dim=1).to(flat.dtype)
