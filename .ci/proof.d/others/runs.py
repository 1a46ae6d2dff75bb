"""Runs of each other tool on a question: the question in the tool's words, and numbers by our names."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from service.estimator.degrees import padded_vocabulary
from service.estimator.model.build import mlp_type
from service.estimator.resolve import ResolvedQuestion
from service.estimator.software.precision import DTYPE_BYTES
from tests.ask import known

Numbers = dict[str, float]
"""Bytes by the name that our answer gives them."""

Run = Callable[[ResolvedQuestion, Any], Numbers]

MIB, GIB = 2**20, 2**30

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


def _loaded(name: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def commit_of(checkout: Path) -> str:
    """The commit of a checkout, as far as it can be told."""
    asked = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return f"@{done.stdout.strip()}" if done.returncode == 0 else "no commit known"


def megatron(checkout: Path) -> tuple[str, Run]:
    """Megatron-LM's report; the two functions that it takes from the rest of the framework are stood in for."""
    utilities = ModuleType("megatron_report.utils")
    vars(utilities).update(is_hybrid_model=lambda _: False, print_rank_0=print)
    package = ModuleType("megatron_report")
    package.__path__ = []
    sys.modules |= {"megatron_report": package, "megatron_report.utils": utilities}
    path = checkout / "megatron" / "training" / "theoretical_memory_usage.py"
    report = _loaded("megatron_report.theoretical_memory_usage", path)

    def run(resolved: ResolvedQuestion, _: Any) -> Numbers:
        found = report.report_theoretical_memory(_megatron_arguments(resolved), int(resolved.degrees.accumulation))
        states, kept, total = (number * MIB for number in found)
        return {"weight and optimizer": states, "activation": kept, "total": total, "peak": total}

    return commit_of(checkout), run


def _megatron_arguments(resolved: ResolvedQuestion) -> Namespace:
    model, recipe, layout = resolved.question.model, resolved.question.recipe, resolved.question.layout
    default = int((4 * model.hidden_size * 2 / 3) / 64) * 64 if model.gated_mlp else 4 * model.hidden_size
    is_latent = model.kv_lora_rank is not None
    sparse = [int(mlp_type(model, layer) == "sparse") for layer in range(model.num_hidden_layers)]
    return Namespace(
        num_layers=model.num_hidden_layers,
        hidden_size=model.hidden_size,
        num_attention_heads=model.num_attention_heads,
        kv_channels=model.head_width,
        group_query_attention=not is_latent and model.key_value_heads != model.num_attention_heads,
        num_query_groups=model.key_value_heads,
        swiglu=model.gated_mlp,
        ffn_hidden_size=model.intermediate_size or default,
        normalization="RMSNorm" if model.normalization == "rmsnorm" else "LayerNorm",
        add_bias_linear=model.mlp_bias,
        untie_embeddings_and_output_weights=not model.tie_word_embeddings,
        padded_vocab_size=int(padded_vocabulary(model, resolved.workload.vocabulary_multiple, layout.tensor)),
        multi_latent_attention=is_latent,
        q_lora_rank=model.q_lora_rank,
        kv_lora_rank=model.kv_lora_rank,
        qk_head_dim=model.qk_nope_head_dim,
        qk_pos_emb_head_dim=model.qk_rope_head_dim,
        v_head_dim=model.v_head_dim,
        num_experts=model.num_experts or None,
        moe_layer_freq=sparse,
        moe_ffn_hidden_size=model.expert_width or None,
        moe_router_topk=model.num_experts_per_tok,
        moe_latent_size=model.moe_latent_size,
        moe_shared_expert_intermediate_size=model.shared_expert_intermediate_size or None,
        moe_shared_expert_gate=model.shared_expert_gate,
        mtp_num_layers=model.num_nextn_predict_layers or None,
        seq_length=recipe.sequence_length,
        micro_batch_size=recipe.micro_batch,
        recompute_granularity=None if resolved.workload.recompute.granularity == "none" else "selective",
        world_size=resolved.question.cluster.gpus,
        data_parallel_size=layout.data,
        tensor_model_parallel_size=layout.tensor,
        pipeline_model_parallel_size=layout.pipeline,
        virtual_pipeline_model_parallel_size=layout.virtual_pipeline if layout.virtual_pipeline > 1 else None,
        expert_model_parallel_size=layout.expert,
        expert_tensor_parallel_size=layout.expert_tensor,
        sequence_parallel=layout.sequence_parallel,
        use_distributed_optimizer=layout.zero_stage != 0,
        hybrid_layer_pattern=None,
    )


def cookbook(checkout: Path) -> tuple[str, Run]:
    """The cookbook's script; it prints two decimals, so its numbers are read where it has computed them."""
    script = _loaded("calc_transformer_mem", checkout / "calc" / "calc_transformer_mem.py")
    names = {
        "Activation Memory": "per_gpu_activation_mem_gib",
        "Model Memory": "per_gpu_model_mem_gib",
        "Gradient Memory": "per_gpu_gradient_mem_gib",
        "Optimizer Memory": "per_gpu_optimizer_mem_gib",
        "Communication Memory": "per_gpu_communication_mem_gib",
        "peak": "per_gpu_mem_gib",
    }

    def run(resolved: ResolvedQuestion, _: Any) -> Numbers:
        computed: dict[str, Any] = {}

        def listen(frame: FrameType, event: str, _: Any) -> None:
            if event == "return" and frame.f_code is script.calc_mem.__code__:
                computed.update(frame.f_locals)

        arguments = script.config_parser().parse_args(_cookbook_arguments(resolved))
        sys.setprofile(listen)
        try:
            script.calc_mem(arguments)
        finally:
            sys.setprofile(None)
        return {name: computed[local] * GIB for name, local in names.items()}

    return commit_of(checkout), run


def _cookbook_arguments(resolved: ResolvedQuestion) -> list[str]:
    model, recipe, layout = resolved.question.model, resolved.question.recipe, resolved.question.layout
    width = model.expert_width or known(model.intermediate_size)
    said = {
        "--num-gpus": resolved.question.cluster.gpus,
        "--tensor-parallel-size": layout.tensor,
        "--pipeline-parallel-size": layout.pipeline,
        "--zero-stage": layout.zero_stage,
        "--batch-size-per-gpu": recipe.micro_batch,
        "--sequence-length": recipe.sequence_length,
        "--vocab-size": model.vocab_size,
        "--hidden-size": model.hidden_size,
        "--num-attention-heads": model.num_attention_heads,
        "--num-layers": model.num_hidden_layers,
        "--ffn-expansion-factor": width / model.hidden_size,
        "--num-mlp-linears": 3 if model.gated_mlp else 2,
        "--kv-size-ratio": model.key_value_heads / model.num_attention_heads,
        "--bytes-per-grad-ele": int(DTYPE_BYTES[known(recipe.gradient_dtype)]),
        "--optimizer": recipe.optimizer.replace("-", "_"),
        "--num-experts": model.num_experts,
        "--expert-parallelism": layout.expert,
    }
    flags = ["--partition-activations"] if layout.sequence_parallel else []
    flags += ["--checkpoint-activations"] if resolved.workload.recompute.granularity == "selective" else []
    return [*(text for name, value in said.items() for text in (name, str(value))), *flags]


def accelerate() -> tuple[str, Run]:
    """accelerate's command on the folder of a config; that there is such a model is not asked of the hub."""
    estimate: Any = importlib.import_module("accelerate.commands.estimate")
    estimate.verify_on_hub = lambda *_: Namespace(config={}, library_name="transformers")

    def run(resolved: ResolvedQuestion, config: Any) -> Numbers:
        dtype = "float32" if resolved.question.recipe.precision == "fp32" else "float16"
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "config.json").write_text(json.dumps(config), encoding="utf-8")
            asked = Namespace(model_name=folder, library_name="transformers", trust_remote_code=False, dtypes=[dtype])
            ((_, _, total, training),) = estimate.gather_data(asked)
        return {**training, "Total Size": total, "peak": max(training.values())}

    return version("accelerate"), run


def deepspeed() -> tuple[str, Run]:
    """DeepSpeed's estimator on a model that transformers builds, with weights: on the meta device it counts wrongly."""
    stage3: Any = importlib.import_module("deepspeed.runtime.zero.stage3")
    transformers: Any = importlib.import_module("transformers")

    def run(resolved: ResolvedQuestion, config: Any) -> Numbers:
        read = transformers.AutoConfig.for_model(**config)
        total, largest = stage3.model_to_params(transformers.AutoModelForCausalLM.from_config(read))
        cluster, layout = resolved.question.cluster, resolved.question.layout
        nodes = cluster.gpus // cluster.gpus_per_node
        found: Numbers = {}
        for optimizer, parameters, sharded in ((1, 1, 1), (1, 1, 0), (1, 0, 1), (1, 0, 0), (0, 0, 1), (0, 0, 0)):
            host, device, module = stage3.estimate_zero3_model_states_mem_needs(
                total, largest, cluster.gpus_per_node, nodes, bool(optimizer), bool(parameters), bool(sharded)
            )
            name = f"offload_param={_place(parameters)}, offload_optimizer={_place(optimizer)}, zero_init={sharded}"
            found |= {f"{name}, GPU": device, f"{name}, CPU": host}
            if not parameters and optimizer == (layout.offload == "optimizer"):
                own = {"parameters, optimizer states and gradients": device - module, "largest layer": module}
                found |= {**own, "peak": device}
        return found

    return version("deepspeed"), run


def _place(is_offloaded: int) -> str:
    return "cpu" if is_offloaded else "none"
