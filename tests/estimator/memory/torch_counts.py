"""What torch says that small models save, hold and multiply, in an environment with transformers, peft and torchtitan.

Writes for each case the bytes of saved tensors, each storage once, weights and inputs left out; the bytes of
optimizer states; and the FLOP of the forward and of the backward pass.
"""

import contextlib
import json
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import prod
from typing import Any

import torch
import transformers
from torch import nn
from torch.nn import functional
from torch.utils import flop_counter

from tests.estimator.memory.torch_cases import BATCH, CASES, PURE, TOKENS, VOCABULARY, Case

WIDE = (torch.pow, torch.Tensor.pow, functional.layer_norm)
"""Functions that autocast runs in fp32 on CUDA, and not on CPUs. Source: torch aten/src/ATen/autocast_mode.h."""


class FusedNorm(torch.autograd.Function):
    """A root mean square norm in one kernel, as on CUDA; it saves its input and a number a token."""

    # Source: torch 2.13 aten/src/ATen/native/layer_norm.cpp, tools/autograd/derivatives.yaml (_fused_rms_norm)

    @staticmethod
    def forward(context: Any, rows: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        """The normed rows."""
        scale = torch.rsqrt(rows.float().pow(2).mean(-1, keepdim=True) + epsilon)
        context.save_for_backward(rows, weight, scale)
        return (rows.float() * scale).to(rows.dtype) * weight

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        """Gradients of the rows and of the weight, right in size alone."""
        rows, weight, scale = context.saved_tensors
        return gradients[0] * scale.to(rows.dtype) * weight, torch.zeros_like(weight), None


class Dropped(torch.autograd.Function):
    """Dropout in one kernel, as on CUDA; it saves a mask of one byte a number."""

    # Source: torch 2.13 tools/autograd/derivatives.yaml (native_dropout)

    @staticmethod
    def forward(context: Any, rows: torch.Tensor, probability: float) -> torch.Tensor:
        """The rows, some of them zero."""
        mask = torch.rand_like(rows, dtype=torch.float32) >= probability
        context.save_for_backward(mask)
        return rows * mask

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        """The gradient of the rows."""
        return gradients[0] * context.saved_tensors[0], None


class AsOnCuda(torch.overrides.TorchFunctionMode):
    """On CPU, the formats that autocast chooses on CUDA and its kernel for norms."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function, in fp32 where autocast on CUDA would."""
        if function is functional.rms_norm:
            given = list(args) + list((kwargs or {}).values())
            return FusedNorm.apply(given[0], given[2], given[3] or torch.finfo(given[0].dtype).eps)
        if function is functional.dropout and (kwargs or {}).get("p", [*args, 0.0][1]):
            return Dropped.apply(args[0], (kwargs or {}).get("p", [*args, 0.0][1]))
        is_attention = function is functional.scaled_dot_product_attention
        if is_attention and args[0].is_contiguous():
            # Results of CUDA's kernel for latent heads lie tokens first, those of CPU's as queries do.
            args = [args[0].transpose(1, 2).contiguous().transpose(1, 2), *args[1:]]
        if function in WIDE and torch.is_autocast_enabled("cpu"):
            args = [one.float() if isinstance(one, torch.Tensor) else one for one in args]
        return function(*args, **(kwargs or {}))


torch.is_autocast_enabled = partial(lambda asked, device="cpu": asked(device), torch.is_autocast_enabled)
"""The device is CUDA where none is named, and peft names none."""


class Held:
    """A saved tensor, held by the graph alone."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def part_of(name: str) -> str:
    """The part of the model that a parameter belongs to."""
    parts = {"embed": "embedding", "norm": "norms", "lm_head": "head", "self_attn": "attention", "mlp": "mlp"}
    return next((part for word, part in parts.items() if word in name), "")


def freeze(model: nn.Module, method: Mapping[str, Any]) -> None:
    """Freeze what a method does not train; what is frozen is held in the compute format."""
    for name, parameter in model.named_parameters():
        layer = int(name.split("layers.")[1].split(".")[0]) if "layers." in name else None
        is_early = layer is not None and layer < method.get("frozen_layers", 0)
        if is_early or part_of(name) in method.get("frozen", ()):
            parameter.requires_grad_(requires_grad=False)


def quantize(model: nn.Module) -> None:
    """Take bitsandbytes' layers for the layers' matrices."""
    import bitsandbytes

    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and name != "lm_head":
            narrow = bitsandbytes.nn.Linear4bit(
                module.in_features, module.out_features, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4"
            )
            model.set_submodule(name, narrow.to("cpu"))
    model.is_loaded_in_4bit = True
    FORMULAS[torch.ops.bitsandbytes.gemm_4bit] = lambda rows, _, matrix, *__, **___: 2 * prod(rows) * matrix[0]


def of_transformers(case: Case) -> nn.Module:
    """A model of transformers in training."""
    config = transformers.AutoConfig.for_model(case.type, **case.config)
    config._attn_implementation = "eager" if case.attention == "eager" else "sdpa"
    method = case.method
    is_wide = case.precision in ("fp32", "bf16-mixed")
    holds_frozen = case.precision == "bf16-mixed" and method["name"] != "full"
    torch.set_default_dtype(torch.float32 if is_wide and not holds_frozen else torch.bfloat16)
    model = transformers.AutoModelForCausalLM.from_config(config).train()
    torch.set_default_dtype(torch.float32)
    if method["name"] == "full":
        freeze(model, method)
        if case.precision == "bf16-mixed":
            for parameter in model.parameters():
                parameter.data = parameter.data if parameter.requires_grad else parameter.data.bfloat16()
    else:
        import peft

        if method["name"] == "qlora":
            quantize(model)
        adapters = peft.LoraConfig(
            r=method["rank"], target_modules=list(method["targets"]), task_type="CAUSAL_LM",
            lora_dropout=method.get("dropout_fraction", 0.0),
        )  # fmt: skip
        model = peft.get_peft_model(model, adapters, autocast_adapter_dtype=case.precision != PURE)
    if case.recompute == "full":
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.disable_input_require_grads()  # of no use but to older checkpoints: the first layer's input gradient
    return model


class Gated(torch.autograd.Function):
    """A gated activation in one kernel, which saves gate and result of the other matrix."""

    # Source: linkedin/Liger-Kernel@0.8.5 ops/swiglu.py LigerSiLUMulFunction

    @staticmethod
    def forward(context: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """What the last matrix reads."""
        context.save_for_backward(gate, up)
        return functional.silu(gate) * up

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradients, right in size alone."""
        gate, up = context.saved_tensors
        return gradients[0] * up, gradients[0] * gate


def of_liger(case: Case) -> nn.Module:
    """A model of transformers whose norms and MLPs are one kernel each, as on CUDA with Liger."""
    # Source: linkedin/Liger-Kernel@0.8.5 transformers/rms_norm.py, transformers/swiglu.py
    model = of_transformers(case)
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = lambda rows, norm=module: FusedNorm.apply(rows, norm.weight, norm.variance_epsilon)
        elif type(module).__name__.endswith("MLP"):
            module.forward = lambda rows, mlp=module: mlp.down_proj(Gated.apply(mlp.gate_proj(rows), mlp.up_proj(rows)))
    return model


class Titan(nn.Module):
    """A model of torchtitan with its loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> Any:
        """The loss of the labels."""
        from torchtitan.components.loss import cross_entropy_loss

        logits = self.model(input_ids)
        return transformers.utils.ModelOutput(loss=cross_entropy_loss(logits, labels))


def of_torchtitan(case: Case) -> nn.Module:
    """A model of torchtitan in training, its parameters as FSDP2 gathers them, its attention torch's."""
    from torchtitan.models import llama3, qwen3
    from torchtitan.models.common import attention, config_utils

    for module in (llama3, qwen3, config_utils):
        module.get_attention_config = lambda _: attention.ScaledDotProductAttention.Config()
    attention.ScaledDotProductAttention.sdpa_backends = [torch.nn.attention.SDPBackend.FLASH_ATTENTION]
    config, width = case.config, case.config["hidden_size"]
    head = config["head_dim"]
    shared = {
        "n_layers": config["num_hidden_layers"], "dim": width, "n_heads": config["num_attention_heads"],
        "n_kv_heads": config["num_key_value_heads"], "fuse_qkv": False, "attn_backend": "sdpa",
    }  # fmt: skip
    rope = {"dim": head, "max_seq_len": TOKENS, "theta": 10_000.0}
    if case.type == "llama":
        package, norm = llama3, llama3.RMSNorm.Config(normalized_shape=width, param_init=llama3._NORM_INIT)
        layers = llama3._build_llama3_layers(
            **shared, hidden_dim=config["intermediate_size"], rope=llama3.ComplexRoPE.Config(**rope)
        )
        kind = llama3.Llama3Model
    else:
        package, norm = qwen3, qwen3._qwen3_norm(width)
        layers = qwen3._build_qwen3_moe_layers(
            **shared, head_dim=head, moe_hidden_dim=config["moe_intermediate_size"],
            num_experts=config["num_experts"], top_k=config["num_experts_per_tok"],
            rope=qwen3.CosSinRoPE.Config(**rope), moe_comm_backend="standard",
        )  # fmt: skip
        kind = qwen3.Qwen3Model
    built = kind.Config(
        vocab_size=VOCABULARY, dim=width, norm=norm, layers=layers,
        tok_embeddings=package.Embedding.Config(
            num_embeddings=VOCABULARY, embedding_dim=width, param_init=package._EMBEDDING_INIT
        ),
        lm_head=package.Linear.Config(in_features=width, out_features=VOCABULARY, param_init=package._LINEAR_INIT),
    ).build()  # fmt: skip
    for parameter in built.parameters():
        parameter.data = torch.randn_like(parameter, dtype=torch.bfloat16) * 0.02
    for module in built.modules():
        if hasattr(module, "cache") and hasattr(module, "_precompute_cache"):
            module.cache = module._precompute_cache()
    return Titan(built).train()


class Adapted(nn.Module):
    """A matrix, and an adapter of its own for each of some parts of its columns."""

    def __init__(
        self, rows: int, columns: tuple[int, ...], adapted: tuple[bool, ...], method: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.whole, self.columns = nn.Linear(rows, sum(columns), bias=False), columns
        self.adapted, self.dropout_fraction = adapted, method.get("dropout_fraction", 0.0)
        self.whole.weight.requires_grad_(requires_grad=method["name"] == "full")
        widths = [width for width, has_one in zip(columns, adapted, strict=True) if has_one]
        rank = method.get("rank", 1)
        self.narrow = nn.Linear(rows, rank * len(widths), bias=False) if widths else nn.Identity()
        self.wide = nn.ModuleList(nn.Linear(rank, width, bias=False) for width in widths)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """What the matrix gives, with what the adapters add."""
        result = self.whole(rows)
        if not len(self.wide):
            return result
        narrow = self.narrow(functional.dropout(rows, self.dropout_fraction))
        parts = zip(narrow.chunk(len(self.wide), dim=-1), self.wide, strict=True)
        added = torch.cat([wide(part) for part, wide in parts], dim=-1)
        if not all(self.adapted):
            starts = [sum(self.columns[:place]) for place in range(len(self.columns))]
            places = [
                torch.arange(start, start + width)
                for start, width, has_one in zip(starts, self.columns, self.adapted, strict=True)
                if has_one
            ]
            added = torch.zeros_like(result).index_copy(-1, torch.cat(places), added)
        return result + added


class JointLayer(nn.Module):
    """A layer with one projection to queries, keys and values, of which the values stay a view."""

    def __init__(self, config: Mapping[str, Any], method: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
        self.heads, self.groups, self.width = heads, config["num_key_value_heads"], config["head_dim"]
        names = method.get("targets", ())
        columns = (hidden, self.groups * self.width, self.groups * self.width)
        self.joint = Adapted(hidden, columns, tuple(f"{name}_proj" in names for name in "qkv"), method)
        shapes = {"o": (hidden, hidden), "gate": (hidden, inner), "up": (hidden, inner), "down": (inner, hidden)}
        self.matrices = nn.ModuleDict(
            {
                name: Adapted(rows, (width,), (f"{name}_proj" in names,), method)
                for name, (rows, width) in shapes.items()
            }
        )
        self.norms = nn.ParameterList(
            nn.Parameter(torch.ones(hidden), requires_grad=method["name"] == "full") for _ in range(2)
        )

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        """The stream after attention and a gated MLP."""
        parts = self.joint(normed(stream, self.norms[0])).split(self.joint.columns, dim=-1)
        queries, keys, values = (part.unflatten(-1, (-1, self.width)).transpose(1, 2) for part in parts)
        if self.groups < self.heads:
            keys, values = (one.repeat_interleave(self.heads // self.groups, dim=1) for one in (keys, values))
        turned = (torch.cat((one, one[..., :0]), dim=-1).contiguous() for one in (queries, keys))
        found = functional.scaled_dot_product_attention(*turned, values, is_causal=True, scale=self.width**-0.5)
        # CUDA's kernel gives its result the strides of the queries, so that heads first are copied.
        stream = stream + self.matrices["o"](found.contiguous().transpose(1, 2).reshape(stream.shape))
        rows = normed(stream, self.norms[1])
        gated = functional.silu(self.matrices["gate"](rows)) * self.matrices["up"](rows)
        return stream + self.matrices["down"](gated)


def normed(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A root mean square norm in single operations, in fp32."""
    wide = rows.float()
    return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-5)).to(rows.dtype) * weight


class Joint(nn.Module):
    """Layers of joint projections between an embedding and a head, with their loss."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        config, method = case.config, case.method
        hidden, is_full = config["hidden_size"], method["name"] == "full"
        self.embedding = nn.Embedding(VOCABULARY, hidden).requires_grad_(requires_grad=is_full)
        self.layers = nn.ModuleList(JointLayer(config, method) for _ in range(config["num_hidden_layers"]))
        self.norm = nn.Parameter(torch.ones(hidden), requires_grad=is_full)
        self.head = Adapted(hidden, (VOCABULARY,), ("lm_head" in method.get("targets", ()),), method)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> Any:
        """The loss of the labels."""
        stream = self.embedding(input_ids)
        for layer in self.layers:
            stream = layer(stream)
        logits = self.head(normed(stream, self.norm)).float()
        loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return transformers.utils.ModelOutput(loss=loss)


def of_litgpt(case: Case) -> nn.Module:
    """A model of layers as litgpt's in training."""
    return Joint(case).bfloat16().train()


MODELS = {"transformers": of_transformers, "liger": of_liger, "torchtitan": of_torchtitan, "litgpt": of_litgpt}


def attention_flop(queries: Any, keys: Any, values: Any, *_: Any, **__: Any) -> int:
    """FLOP of torch's fused attention on CPU, which its counter leaves out."""
    heads = queries[:2] + keys[2:]
    return flop_counter.sdpa_flop_count(queries, heads, values[:1] + queries[1:2] + values[2:])


def attention_backward_flop(_: Any, queries: Any, keys: Any, values: Any, *__: Any, **___: Any) -> int:
    """FLOP of its backward pass, the scores that the kernel computes again left out."""
    return 2 * attention_flop(queries, keys, values)


def convolution_flop(rows: Any, weight: Any, *_: Any, **__: Any) -> int:
    """FLOP of a convolution of each channel by itself, what its padding adds left out."""
    return 2 * rows[0] * weight[0] * weight[-1] * TOKENS


def convolution_backward_flop(_: Any, rows: Any, weight: Any, *__: Any, **___: Any) -> int:
    """FLOP of its backward pass, in which torch's counter forgets that channels are apart."""
    return 2 * convolution_flop(rows, weight)


def grouped_flop(rows: Any, matrices: Any, *_: Any, **__: Any) -> int:
    """FLOP of a grouped product, which torch's counter leaves out: of rows by matrices, or for these."""
    if len(rows) == len(matrices) == 2:
        return 2 * rows[0] * rows[1] * matrices[1]
    return 2 * rows[0] * rows[1] * matrices[2]


aten = torch.ops.aten
FORMULAS = {
    aten._scaled_dot_product_flash_attention_for_cpu: attention_flop,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward_flop,
    aten._grouped_mm: grouped_flop,
    aten.convolution: convolution_flop,
    aten.convolution_backward: convolution_backward_flop,
}


def saved_storages(held: "weakref.WeakSet[Held]", excluded: set[int], mark: Callable[[Any], None]) -> Iterator[Any]:
    """Bytes of each storage that the graph holds."""
    seen = set(excluded)
    for one in held:
        storage = one.tensor.untyped_storage()
        if storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            mark(one)
            yield storage.nbytes()


def counted(case: Case, mark: Callable[[Any], None] = lambda _: None) -> dict[str, int]:
    """The counts of one training step."""
    torch.manual_seed(0)
    model = MODELS[case.library](case)
    tokens = torch.randint(VOCABULARY, (BATCH, TOKENS))
    labels = tokens.clone()
    excluded = {one.untyped_storage().data_ptr() for one in (*model.parameters(), *model.buffers(), tokens, labels)}
    held: weakref.WeakSet[Held] = weakref.WeakSet()

    def pack(tensor: torch.Tensor) -> Held:
        one = Held(tensor)
        held.add(one)
        return one

    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad])
    is_mixed = case.precision == "bf16-mixed"
    options = {"use_cache": False} if case.library in ("transformers", "liger") else {}
    with flop_counter.FlopCounterMode(display=False, custom_mapping=FORMULAS) as flop:
        with (
            torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one.tensor),
            torch.autocast("cpu", torch.bfloat16) if is_mixed else contextlib.nullcontext(),
            AsOnCuda(),
        ):
            loss = model(input_ids=tokens, labels=labels, **options).loss
        forward = flop.get_total_flops()
        saved_bytes = sum(saved_storages(held, excluded, mark))
        with AsOnCuda():
            loss.backward()
    optimizer.step()
    states = [one for state in optimizer.state.values() for one in state.values()]
    return {
        "saved_bytes": saved_bytes,
        "state_bytes": sum(one.nbytes for one in states if one.dim()),
        "forward_flop": forward,
        "backward_flop": flop.get_total_flops() - forward,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    json.dump({name: counted(case) for name, case in CASES.items()}, sys.stdout)
