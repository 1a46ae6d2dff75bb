"""Time of a full estimate beside llm-analysis's training analysis, six dense questions asked to both in one process.

Every turn asks for a run of another length, so no question comes twice, to either tool. Ours works out a configuration
once for all its runs; what the first run of each costs is printed beside.
"""

import importlib
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from statistics import median
from typing import Any

from speed import MEMOS

from service.catalogue import shipped_catalogue
from service.estimator import Cluster, Gpu, Layout, Model, Price, Question, Recipe, estimate

RUNS = 300
MOST_RATIO = 1.0
"""Median time of ours over that of theirs, for each question and over all."""

TOKENS = 1.4e12
"""Of the first turn."""
MORE_TOKENS = 1e9
"""Of each turn over the one before."""
FLOPS_EFFICIENCY = 0.5
"""What their constants call usual for Megatron-LM: they are told it, where ours is predicted."""

try:
    analysis: Any = importlib.import_module("llm_analysis.analysis")
    config: Any = importlib.import_module("llm_analysis.config")
except ImportError:
    print(
        "needs llm-analysis beside this project: pip install -e . llm-analysis==0.2.2, "
        "then PYTHON=... .ci/proof beside",
        file=sys.stderr,
    )
    sys.exit(2)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One question in the words that both tools share; bf16 on A100 SXM 80GB, Adam sharded over the data ranks."""

    model: str
    """Name of one of their model configs."""
    tensor: int = 1
    pipeline: int = 1
    data: int
    micro_batch: int
    global_batch: int
    recomputes: bool = False
    """Every layer runs forward again in the backward pass."""
    sequence_length: int = 2048

    @property
    def gpus(self) -> int:
        return self.tensor * self.pipeline * self.data

    def __str__(self) -> str:
        split = f"tp {self.tensor}, pp {self.pipeline}, dp {self.data}"
        return f"{self.model.split('_')[-1].removesuffix('-hf')} on {self.gpus} GPUs ({split})"


ASKED = (
    Asked(model="facebook_opt-1.3b", data=8, micro_batch=4, global_batch=256),
    Asked(model="decapoda-research_llama-7b-hf", data=32, micro_batch=1, global_batch=1024),
    Asked(model="decapoda-research_llama-13b-hf", tensor=2, data=64, micro_batch=1, global_batch=1024),
    Asked(model="facebook_opt-66b", tensor=8, data=32, micro_batch=2, global_batch=1024, recomputes=True),
    Asked(model="decapoda-research_llama-65b-hf", tensor=8, pipeline=2, data=32, micro_batch=1, global_batch=1024),
    Asked(model="facebook_opt-175b", tensor=8, pipeline=8, data=16, micro_batch=1, global_batch=1024, recomputes=True),
)


def ours(asked: Asked, gpu: Gpu) -> Question:
    """The question for us; the model is their config of it, so both work on the same matrices."""
    theirs = config.get_model_config_by_name(asked.model)
    return Question(
        model=Model(
            vocab_size=theirs.vocab_size,
            hidden_size=theirs.hidden_dim,
            num_hidden_layers=theirs.num_layers,
            num_attention_heads=theirs.n_head,
            num_key_value_heads=theirs.num_key_value_heads,
            intermediate_size=theirs.ffn_embed_dim,
            max_position_embeddings=theirs.max_seq_len,
            gated_mlp=False,
            tie_word_embeddings=True,
            normalization="layernorm",
        ),
        recipe=Recipe(
            sequence_length=asked.sequence_length,
            micro_batch=asked.micro_batch,
            global_batch=asked.global_batch,
            training_tokens=TOKENS,
            recompute="full" if asked.recomputes else "none",
        ),
        layout=Layout(data=asked.data, tensor=asked.tensor, pipeline=asked.pipeline, zero_stage=1),
        cluster=Cluster(gpu=gpu.slug, gpus=asked.gpus),
        gpu=gpu,
        price=Price(usd_per_gpu_hour=2.5),
    )


def theirs(asked: Asked) -> Callable[[float], dict[str, Any]]:
    """Their whole analysis of the question for so many tokens, its configs already read; it writes no file."""
    model = config.get_model_config_by_name(asked.model)
    gpu = config.get_gpu_config_by_name("a100-sxm-80gb")
    dtype = config.get_dtype_config_by_name("w16a16e16")
    degrees = config.ParallelismConfig(tp_size=asked.tensor, pp_size=asked.pipeline, dp_size=asked.data)
    recompute = analysis.ActivationRecomputation
    said = {
        "batch_size_per_gpu": asked.micro_batch,
        "global_batch_size": asked.global_batch,
        "seq_len": asked.sequence_length,
        "activation_recomputation": recompute.FULL if asked.recomputes else recompute.NONE,
        "ds_zero": analysis.DSZeRO.STAGE_1,
    }

    def run(tokens: float) -> dict[str, Any]:
        tool = analysis.LLMAnalysis(model, gpu, dtype, degrees, flops_efficiency=FLOPS_EFFICIENCY)
        found: dict[str, Any] = tool.training(total_num_tokens=tokens, **said)
        return found

    return run


def seconds_of(answers: Callable[[], object]) -> float:
    started = time.perf_counter()
    answers()
    return time.perf_counter() - started


@dataclass(frozen=True)
class Timed:
    """Median seconds of one question: another run, the first run of its configuration, and theirs."""

    again: float
    first: float
    theirs: float


def timed(question: Question, run: Callable[[float], object]) -> Timed:
    """Ask both in turns."""
    again, first, other = [], [], []
    for turn in range(RUNS):
        tokens = TOKENS + 2 * turn * MORE_TOKENS
        for memo in MEMOS:
            memo.cache_clear()
        one, another = with_tokens(question, tokens), with_tokens(question, tokens + MORE_TOKENS)
        first.append(seconds_of(partial(estimate, one)))
        other.append(seconds_of(partial(run, tokens)))
        again.append(seconds_of(partial(estimate, another)))
    return Timed(median(again), median(first), median(other))


def with_tokens(question: Question, tokens: float) -> Question:
    return replace(question, recipe=replace(question.recipe, training_tokens=tokens))


def shown(name: str, found: Timed) -> str:
    return (
        f"{name:<46} ours {1e3 * found.again:.2f} ms (its first run {1e3 * found.first:.2f}), "
        f"theirs {1e3 * found.theirs:.2f} ms, ratio {found.again / found.theirs:.2f} "
        f"(first run {found.first / found.theirs:.1f})"
    )


def main() -> None:
    logging.getLogger(analysis.logger.name).setLevel(logging.ERROR)
    gpu = shipped_catalogue().find_gpu("a100-sxm4-80gb").row.gpu
    print(f"llm-analysis {version('llm-analysis')}, {RUNS} turns, medians")
    found = []
    for asked in ASKED:
        question, run = ours(asked, gpu), theirs(asked)
        found.append(timed(question, run))
        print(shown(str(asked), found[-1]))
        step, latency = estimate(question).step.step_seconds, run(TOKENS)["latency_per_iter"]
        print(
            f"    one step: ours {step.value:.2f} s ({step.low:.2f} to {step.high:.2f}), "
            f"theirs {latency:.2f} s at a given {FLOPS_EFFICIENCY:.0%} of peak"
        )
    overall = Timed(*(median(times) for times in zip(*((t.again, t.first, t.theirs) for t in found), strict=True)))
    print(shown(f"median of the {len(found)}", overall))
    slow = sum(one.again > MOST_RATIO * one.theirs for one in (*found, overall))
    if slow:
        sys.exit(f"ours takes longer on {slow} of {len(found) + 1} lines")


if __name__ == "__main__":
    main()
