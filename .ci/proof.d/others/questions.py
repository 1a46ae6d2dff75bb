"""Random questions for the other tools: by sizes for those that take sizes, by config.json for the others."""

import random
from collections.abc import Iterator
from typing import Any

from service.estimator import Cluster, Layout, Model, Question, Recipe
from service.estimator.question import ToolName
from service.estimator.samples import H100

TYPES = ("llama", "qwen2", "qwen3", "mistral", "gemma", "olmo2", "mixtral", "qwen3_moe", "gpt2", "opt", "gpt_neox")
"""Types of config that a model is asked about by."""


def _model(chance: random.Random, *, has_latent: bool) -> Model:
    heads, width = chance.choice((16, 32, 64)), chance.choice((64, 128))
    hidden = heads * chance.choice((64, 96, 128))
    fields: dict[str, Any] = {
        "vocab_size": chance.choice((32000, 50257, 128256, 151936)),
        "hidden_size": hidden,
        "num_hidden_layers": chance.choice((12, 24, 32, 64, 80)),
        "num_attention_heads": heads,
        "num_key_value_heads": chance.choice((heads, heads // 4, 8)),
        "head_dim": chance.choice((None if hidden % heads == 0 else width, width)),
        "intermediate_size": chance.choice((2 * hidden, 3 * hidden + 128, 4 * hidden)),
        "gated_mlp": chance.random() < 0.7,
        "mlp_bias": chance.random() < 0.3,
        "tie_word_embeddings": chance.random() < 0.4,
        "normalization": chance.choice(("rmsnorm", "layernorm")),
    }
    if chance.random() < 0.4:
        fields |= {"num_experts": chance.choice((8, 16, 64)), "num_experts_per_tok": 2}
        fields |= {"moe_intermediate_size": chance.choice((512, 2048))}
        if has_latent and chance.random() < 0.7:
            fields |= {"shared_expert_intermediate_size": 2048, "shared_expert_gate": chance.random() < 0.5}
            fields |= {"first_k_dense_replace": chance.choice((0, 1, 3)), "num_nextn_predict_layers": 1}
            fields |= {"intermediate_size": chance.choice((fields["intermediate_size"], hidden * 2))}
            fields |= {"moe_latent_size": chance.choice((None, 1024))}
        elif chance.random() < 0.5:
            fields["intermediate_size"] = None
    if has_latent and chance.random() < 0.4:
        fields |= {"num_key_value_heads": heads, "head_dim": None, "kv_lora_rank": 512}
        fields |= {"q_lora_rank": chance.choice((None, 1536)), "qk_nope_head_dim": 128, "qk_rope_head_dim": 64}
        fields |= {"v_head_dim": 128}
    return Model(**fields)


def questions(chance: random.Random, name: ToolName) -> Iterator[tuple[Question, None]]:
    """Questions by sizes, without end; some break a rule."""
    is_megatron = name == "megatron-theoretical"
    while True:
        data, tensor, pipeline = (chance.choice((1, 2, 4, 8)) for _ in range(3))
        virtual = chance.choice((1, 1, 2)) if pipeline > 1 and is_megatron else 1
        micro_batch = chance.choice((1, 2, 4))
        model = _model(chance, has_latent=is_megatron)
        recipe = Recipe(
            sequence_length=chance.choice((2048, 4096, 32768)),
            micro_batch=micro_batch,
            global_batch=micro_batch * data * chance.choice((1, 2, 4, 8)),
            recompute=chance.choice(("none", "selective")),
            optimizer="adamw" if is_megatron else chance.choice(("adamw", "sgd-momentum", "muon")),
            gradient_dtype="fp32" if is_megatron else chance.choice(("fp32", "bf16")),
            dropout_fraction=chance.choice((0.0, 0.1)),
            stack=chance.choice(("megatron-core", "deepspeed")),
        )
        layout = Layout(
            data=data,
            tensor=tensor,
            pipeline=pipeline,
            virtual_pipeline=virtual,
            expert=chance.choice((1, 2, 4)) if model.num_experts else 1,
            expert_tensor=tensor if model.num_experts and (not is_megatron or chance.random() < 0.5) else None,
            zero_stage=chance.choice((0, 1) if is_megatron else (0, 1, 2, 3)),
            sequence_parallel=chance.choice((None, False)),
        )
        gpus = data * tensor * pipeline
        cluster = Cluster(gpu=H100.slug, gpus=gpus)
        yield Question(model=model, recipe=recipe, layout=layout, cluster=cluster, gpu=H100), None


def configs(chance: random.Random) -> Iterator[dict[str, Any]]:
    """Small models by config.json, without end."""
    while True:
        kind, heads = chance.choice(TYPES), chance.choice((4, 8))
        hidden, layers, width = heads * 32, chance.choice((2, 4)), chance.choice((256, 512, 1024))
        config = {
            "model_type": kind,
            "vocab_size": chance.choice((1000, 8000, 32000)),
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": chance.choice((heads, 2)),
            "intermediate_size": width,
            "tie_word_embeddings": chance.random() < 0.5,
        }
        if kind in ("mixtral", "qwen3_moe"):
            config |= {"num_local_experts": 8} if kind == "mixtral" else {"num_experts": 8}
            config |= {"moe_intermediate_size": chance.choice((64, 256))} if kind == "qwen3_moe" else {}
        if kind in ("qwen3", "qwen3_moe", "gemma", "mistral"):
            config["head_dim"] = chance.choice((32, 64))
        if kind == "gpt2":
            config = {"model_type": kind, "vocab_size": config["vocab_size"], "n_embd": hidden, "n_layer": layers}
            config |= {"n_head": heads, "n_inner": width}
        if kind == "opt":
            config["ffn_dim"] = config.pop("intermediate_size")
            config |= {"word_embed_proj_dim": hidden}
        if kind in ("gpt2", "opt", "gpt_neox"):
            config.pop("num_key_value_heads", None)
        yield config
