"""The model of a question is built as described: its parameters to the unit, or a refusal by field."""

from dataclasses import asdict, replace
from typing import Any

import pytest

from service.catalogue import shipped_catalogue
from service.errors import Refused
from service.estimator.model.build import build_ledger
from service.estimator.model.counts import parameter_counts
from service.estimator.model.ledger import SequenceSettings
from service.estimator.question import Model
from service.worker.supported import BUILT, step_model
from tests.ask import known
from tests.worker.probing import need_torch

SETTING = SequenceSettings(
    tokens=8, element_bytes=4, keeps_scores=True, fused_norm=False, fused_activation=False, repeats_key_values=True
)

NOT_BUILT = {
    "attention_sinks", "kv_lora_rank", "layer_types", "mlp_layer_types", "num_nextn_predict_layers", "q_lora_rank",
    "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "router_bias",
}  # fmt: skip
"""Fields for which presets are refused."""


def fields_or_refusal(model: Model) -> tuple[Model | None, set[str]]:
    """The fields of a model, or the names of those for which it is refused."""
    try:
        return step_model(asdict(model)), set()
    except Refused as error:
        return None, {one.field.removeprefix("model.") for one in error.problems}


def test_presets_have_their_parameters_or_are_refused_by_field() -> None:
    need_torch()
    from service.worker.decoder import DecoderOptions, build

    built = 0
    for slug, row in shipped_catalogue().models.items():
        for depth in (1, 2):
            model = replace(known(row.model), num_hidden_layers=depth)
            fields, refused = fields_or_refusal(model)
            assert refused <= NOT_BUILT, slug
            if fields is None:
                continue
            decoder = build(fields, DecoderOptions(kernel="eager"), "bf16", "meta")
            found = sum(parameter.numel() for parameter in decoder.parameters())
            assert found == parameter_counts(model, build_ledger(model, SETTING)).total, slug
            built += 1
    assert built > 250


def test_fields_are_the_estimators() -> None:
    assert Model.__dataclass_fields__.keys() >= BUILT


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("model.attention_gate", {"attention_gate": "per_head"}),
        ("model.num_mem_blocks", {"num_mem_blocks": 2}),
        ("model.layer_types", {"layer_types": ["mamba"], "mamba_d_ssm": None}),
        ("model.mlp_layer_types", {"mlp_layer_types": ["dense_and_sparse"]}),
        ("model.norms_per_layer", {"norms_per_layer": 1}),
        ("model.num_attention_heads", {"num_attention_heads": 0}),
        ("model.head_dim", {"head_dim": 63}),
    ],
)
def test_what_is_not_built_is_refused_by_its_field(field: str, changes: dict[str, Any]) -> None:
    llama = asdict(known(shipped_catalogue().models["llama-3.2-1b"].model))
    with pytest.raises(Refused) as caught:
        step_model({**llama, **changes})
    assert field in {problem.field for problem in caught.value.problems}
    assert "not built" in str(caught.value) or "odd" in str(caught.value) or "parallel" in str(caught.value)


def test_every_kind_of_layer_trains() -> None:
    need_torch()
    import torch

    from service.worker.decoder import DecoderOptions, build, causal_loss

    small: dict[str, Any] = {
        "vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 32,
    }  # fmt: skip
    kinds: list[dict[str, Any]] = [
        {},
        {"num_experts": 4, "num_experts_per_tok": 2, "shared_expert_intermediate_size": 8, "shared_expert_gate": True},
        {"num_experts": 4, "num_experts_per_tok": 1, "gated_mlp": False, "first_k_dense_replace": 1},
        {"layer_types": ["sliding_attention", "chunked_attention"], "sliding_window": 3, "attention_chunk_size": 4},
        {"norms_per_layer": 4, "qk_norm": "full", "normalization": "rmsnorm_1p"},
        {"parallel_attention": True, "norms_per_layer": 1, "normalization": "layernorm", "gated_mlp": False},
        {"qk_norm": "l2", "embedding_norm": True, "word_embed_proj_dim": 8, "lm_head_bias": True},
        {"qk_norm": "per_head_dim_biased", "normalization": "nonparametric", "mlp_bias": True, "attention_bias": True},
    ]
    tokens = torch.randint(64, (2, 8))
    for kind in kinds:
        losses = []
        for kernel in ("eager", "flash"):
            torch.manual_seed(7)
            model = build(step_model({**small, **kind}), DecoderOptions(kernel=kernel), "fp32", "cpu")
            loss = causal_loss(model.logits(tokens), tokens, 64)
            loss.backward()
            assert all(parameter.grad is not None for parameter in model.parameters()), kind
            losses.append(float(loss.detach()))
        assert losses[0] == pytest.approx(losses[1], rel=1e-4), kind


def test_grouped_products_are_products() -> None:
    need_torch()
    import torch

    from service.worker.decoder import GroupedProduct

    rows = torch.randn(5, 3, dtype=torch.double, requires_grad=True)
    matrices = torch.randn(3, 4, 3, dtype=torch.double, requires_grad=True)
    ends = torch.tensor([2, 2, 5])
    assert torch.autograd.gradcheck(lambda one, other: GroupedProduct.apply(one, other, ends), (rows, matrices))
    by_hand = torch.cat((rows[:2] @ matrices[0].T, rows[2:] @ matrices[2].T))
    assert torch.allclose(GroupedProduct.apply(rows, matrices, ends), by_hand)
