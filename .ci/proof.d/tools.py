"""Step times that llm-analysis and Calculon predict for the published steps they can express, written as shipped data.

Asked as `PYTHON=... .ci/proof tools CHECKOUT COMMIT`: an interpreter with this project and llm-analysis==0.2.2, and a
checkout of calculon-ai/calculon at a commit. Neither is a dependency, and none of their code is here.
"""

import csv
import importlib
import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

from service.calibration.steps import StepRow
from service.calibration.tables import shipped_rows
from service.catalogue import shipped_catalogue
from service.estimator.resolve import ResolvedQuestion, resolve
from service.evaluation.scoreboard import OTHER_TOOLS, question_digest
from service.evaluation.scoring import evaluate_rows, step_rows_of
from service.source_tree import ROOT

FLOPS_EFFICIENCY = 0.5
"""What llm-analysis's constants call usual for Megatron-LM; it predicts none, and its default is the peak."""

GPUS = {
    "a100-pcie-40gb": "a100-pcie-40gb", "a100-pcie-80gb": "a100-pcie-80gb", "a100-sxm4-40gb": "a100-sxm-40gb",
    "a100-sxm4-80gb": "a100-sxm-80gb", "h100-pcie-80gb": "h100-pcie-80gb", "h100-sxm5-80gb": "h100-sxm-80gb",
    "v100-sxm2-16gb": "v100-sxm-16gb", "v100-sxm2-32gb": "v100-sxm-32gb",
}  # fmt: skip
"""llm-analysis's own GPUs, by our name."""

SYSTEMS = {"a100-sxm4-80gb": "a100_80g", "h100-sxm5-80gb": "h100_80g_nvl8"}
"""Calculon's own systems, by our name of the GPU."""

NETWORK_SIZE = 8
"""GPUs of the first network of each of them."""
WHATEVER_FITS = 1 << 20
"""GiB of each GPU: the runs are real, so none is refused for its memory."""

PLAIN = {"bf16-mixed", "fp16-mixed", "bf16-pure", "fp16-pure"}


class Inexpressible(Exception):
    """A step that a tool has no words for."""


def need(what: str, *, is_so: bool) -> None:
    if not is_so:
        raise Inexpressible(what)


def refuse_foreign(resolved: ResolvedQuestion) -> None:
    """Refuse what neither tool expresses."""
    question, model = resolved.question, resolved.workload.model
    need("experts", is_so=not model.num_experts)
    need("layers of other kinds", is_so=not model.layer_types and not model.kv_lora_rank)
    need("a format of 8 bits", is_so=question.recipe.precision in PLAIN)
    need("context ranks", is_so=question.layout.context == 1)
    need("adapters", is_so=question.recipe.method == "full")


def granularity_of(resolved: ResolvedQuestion) -> str:
    rule = resolved.workload.recompute
    is_core = rule.granularity == "selective" and rule.modules == ("core_attn",)
    need("recompute of some parts", is_so=rule.granularity in ("none", "full") or is_core)
    need("recompute of some layers", is_so=not rule.layers)
    return rule.granularity


def llm_analysis() -> Callable[[ResolvedQuestion], float]:
    analysis: Any = importlib.import_module("llm_analysis.analysis")
    config: Any = importlib.import_module("llm_analysis.config")
    logging.getLogger(analysis.logger.name).setLevel(logging.CRITICAL)
    zero = {0: "NONE", 1: "STAGE_1", 2: "STAGE_2", 3: "STAGE_3"}

    def seconds(resolved: ResolvedQuestion) -> float:
        refuse_foreign(resolved)
        question, model, layout = resolved.question, resolved.workload.model, resolved.question.layout
        need("its own GPUs", is_so=question.gpu.slug in GPUS)
        width = model.intermediate_size or 4 * model.hidden_size
        theirs = config.ModelConfig(
            name="m", num_layers=model.num_hidden_layers, n_head=model.num_attention_heads,
            hidden_dim=model.hidden_size, vocab_size=model.vocab_size, max_seq_len=question.recipe.sequence_length,
            num_key_value_heads=model.num_key_value_heads, ffn_embed_dim=width,
            expansion_ratio=width / model.hidden_size,
        )  # fmt: skip
        degrees = config.ParallelismConfig(
            tp_size=layout.tensor, pp_size=layout.pipeline, dp_size=layout.data,
            sp_size=layout.tensor if layout.sequence_parallel else 1,
        )  # fmt: skip
        tool = analysis.LLMAnalysis(
            theirs, config.get_gpu_config_by_name(GPUS[question.gpu.slug]),
            config.get_dtype_config_by_name("w16a16e16"), degrees, flops_efficiency=FLOPS_EFFICIENCY,
        )  # fmt: skip
        found: dict[str, Any] = tool.training(
            batch_size_per_gpu=question.recipe.micro_batch,
            global_batch_size=question.recipe.global_batch,
            seq_len=question.recipe.sequence_length,
            total_num_tokens=1e12,
            activation_recomputation=analysis.ActivationRecomputation[granularity_of(resolved).upper()],
            ds_zero=analysis.DSZeRO[zero[layout.zero_stage]],
            flash_attn=question.recipe.attention != "eager",
            mlp_gated_linear_units=model.gated_mlp,
        )
        return float(found["latency_per_iter"])

    return seconds


def calculon(checkout: Path) -> Callable[[ResolvedQuestion], float]:
    sys.path.insert(0, str(checkout))
    sys.modules.setdefault("pandas", ModuleType("pandas"))  # another of its commands writes tables with it
    llm: Any = importlib.import_module("calculon.llm")
    system: Any = importlib.import_module("calculon.system")

    @cache
    def machine(name: str) -> Any:
        described = json.loads((checkout / "systems" / f"{name}.json").read_text(encoding="utf-8"))
        described["mem1"]["GiB"] = WHATEVER_FITS
        return system.System(described)

    def seconds(resolved: ResolvedQuestion) -> float:
        refuse_foreign(resolved)
        question, model, layout = resolved.question, resolved.workload.model, resolved.question.layout
        need("its own systems", is_so=question.gpu.slug in SYSTEMS)
        need("gated layers", is_so=not model.gated_mlp)
        need("shared keys", is_so=model.num_key_value_heads == model.num_attention_heads)
        need("sharded weights", is_so=layout.zero_stage <= 1)
        need(
            "stages of several sizes", is_so=model.num_hidden_layers % (layout.pipeline * layout.virtual_pipeline) == 0
        )
        granularity = granularity_of(resolved)
        gpus = question.cluster.gpus
        application = llm.Llm.Application({
            "hidden": model.hidden_size, "feedforward": model.intermediate_size,
            "seq_size": question.recipe.sequence_length, "attn_heads": model.num_attention_heads,
            "attn_size": model.hidden_size // model.num_attention_heads, "num_blocks": model.num_hidden_layers,
        })  # fmt: skip
        inner = layout.tensor * layout.pipeline <= NETWORK_SIZE
        execution = llm.Llm.Execution.from_json({
            "num_procs": gpus, "tensor_par": layout.tensor, "pipeline_par": layout.pipeline, "data_par": layout.data,
            "tensor_par_net": 0, "pipeline_par_net": 0 if inner else 1,
            "data_par_net": 0 if gpus <= NETWORK_SIZE else 1,
            "batch_size": question.recipe.global_batch, "microbatch_size": question.recipe.micro_batch,
            "datatype": "float16", "fused_activation": True, "attention_type": "multihead",
            "activation_recompute": {"selective": "attn_only"}.get(granularity, granularity),
            "pipeline_interleaving": layout.virtual_pipeline,
            "optimizer_sharding": layout.zero_stage == 1 and layout.data > 1,
            "tensor_par_comm_type": "rs_ag" if layout.sequence_parallel else "ar", "tensor_par_overlap": "none",
            "seq_par_ag_redo": False, "data_par_overlap": layout.data > 1, "weight_offload": False,
            "activations_offload": False, "optimizer_offload": False, "training": True,
        })  # fmt: skip
        model_of_it = llm.Llm(application, logging.getLogger("calculon"))
        model_of_it.compile(machine(SYSTEMS[question.gpu.slug]), execution)
        model_of_it.run(machine(SYSTEMS[question.gpu.slug]))
        return float(model_of_it.get_total_time())

    return seconds


def asked(rows: Sequence[StepRow], tools: dict[str, Callable[[ResolvedQuestion], float]]) -> Iterator[tuple[str, ...]]:
    """The seconds of every row that a tool expresses; what it does not is counted by reason."""
    for name, seconds in tools.items():
        reasons: dict[str, int] = {}
        for row in rows:
            try:
                yield name, row.id, question_digest(row.question), f"{seconds(resolve(row.question)):.6g}"
            except Inexpressible as error:
                reasons[str(error)] = reasons.get(str(error), 0) + 1
            except Exception as error:
                reason = f"refused by it: {str(error)[:60] or type(error).__name__}"
                reasons[reason] = reasons.get(reason, 0) + 1
        print(f"{name} is not asked about: {reasons}")


def main() -> None:
    logging.disable(logging.CRITICAL)
    checkout, commit = Path(sys.argv[1]), sys.argv[2]
    rows = step_rows_of(evaluate_rows(shipped_rows("throughput"), shipped_catalogue()))
    tools = {f"llm-analysis {version('llm-analysis')}": llm_analysis(), f"Calculon {commit}": calculon(checkout)}
    found = sorted(asked(rows, tools))
    file = ROOT / "service" / "calibration" / "published" / f"{OTHER_TOOLS}.csv"
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(("tool", "id", "question", "step_seconds"))
        writer.writerows(found)
    print(f"{len(found)} predictions in {file.name}")


if __name__ == "__main__":
    main()
