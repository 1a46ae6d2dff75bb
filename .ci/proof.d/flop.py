"""FLOP of whole models, forward and backward, against torch's own counter; FLOP of a token against published ones."""

import json
import sys
import tomllib
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from service.estimator import Layout, Model, Question, Recipe
from service.estimator.model.counts import SequenceFlop, per_token_flop, sequence_flop
from service.estimator.question import Cluster, PartName
from service.estimator.resolve import resolve
from service.estimator.samples import H100
from tests.estimator.flop_counter import BESIDE, COUNTS, Counted, beside, expected, method_of, recorded

try:
    import torch
    from torch import nn
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import AutoModelForCausalLM, __version__
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
except ImportError:
    sys.exit(
        "needs torch and transformers: pip install torch==2.13.0 transformers==5.23.0, then PYTHON=... .ci/proof flop"
    )

CONFIGS = json.loads(Path("tests/catalogue/preset_configs.json").read_text(encoding="utf-8"))["configs"]
PUBLISHED = Path("tests/published")
RUN_AS = {"kimi_k2": "deepseek_v3"}
"""Types whose class transformers has under another name."""

PARTS: tuple[tuple[tuple[str, ...], PartName], ...] = (
    (("embed_tokens",), "embedding"),
    (("lm_head",), "head"),
    (("self_attn",), "attention"),
    (("experts", "shared_experts", "shared_expert", "shared_expert_gate"), "experts"),
    (("gate", "router"), "router"),
    (("mlp",), "mlp"),
)
"""Modules of a model in Llama's spelling, and the part that they are; the first that fits."""

CONDITIONS = (
    "AutoModelForCausalLM.from_config on the meta device in bfloat16, training mode; attn_implementation eager; "
    "explicit 4-D mask and position ids (bloom: its own mask from a 2-D one; "
    "bloom and mpt take no position ids); loss: sum of the logits; experts_implementation batched_mm"
)


class Adapted(nn.Module):  # type: ignore[misc,unused-ignore]  # without torch it is Any
    """A frozen linear layer and the two trained halves of an adapter beside it."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        kind = {"bias": False, "device": base.weight.device, "dtype": base.weight.dtype}
        self.first = nn.Linear(base.in_features, rank, **kind)
        self.second = nn.Linear(rank, base.out_features, **kind)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outcome: torch.Tensor = self.base(x) + self.second(self.first(x))
        return outcome


def freeze(network: nn.Module, case: Counted) -> None:
    """Take gradients from what the method freezes, and put adapters beside the matrices that it names."""
    method = method_of(case)
    for name, weights in network.named_parameters():
        words = name.split(".")
        layer = next((int(word) for word in words if word.isdigit()), None)
        found = (part for modules, part in PARTS if set(words) & set(modules))
        part = "norms" if "norm" in name else next(found, None)
        is_frozen = part in method.frozen or (layer is not None and layer < method.frozen_layers)
        weights.requires_grad_(method.name == "full" and not is_frozen)
    for name, module in list(network.named_modules()):
        outer, _, last = name.rpartition(".")
        if isinstance(module, nn.Linear) and last in method.targets:
            setattr(network.get_submodule(outer), last, Adapted(module, method.rank or 8))


def measured(case: Counted) -> Counted:
    """The case with what torch counts of it today."""
    written = CONFIGS[case.preset]
    model_type = RUN_AS.get(written["model_type"], written["model_type"])
    config = CONFIG_MAPPING[model_type](**{key: value for key, value in written.items() if key != "model_type"})
    experts = {"experts_implementation": "batched_mm"} if any("expert" in key for key in written) else {}
    shape = (case.batch, case.tokens)
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(
            config, dtype=torch.bfloat16, attn_implementation="eager", **experts
        ).train()
        freeze(network, case)
        mask = torch.zeros(case.batch, 1, case.tokens, case.tokens, dtype=torch.bfloat16)
        if model_type == "bloom":
            mask = torch.ones(shape, dtype=torch.long)
        given: dict[str, Any] = {"input_ids": torch.zeros(shape, dtype=torch.long), "attention_mask": mask}
        if model_type not in ("bloom", "mpt"):
            given["position_ids"] = torch.arange(case.tokens).expand(shape)
        with FlopCounterMode(display=False) as ahead:
            logits = network(**given, use_cache=False).logits
        with FlopCounterMode(display=False) as back:
            logits.float().sum().backward()
    return replace(case, forward=ahead.get_total_flops(), backward=back.get_total_flops())


def against_torch(cases: list[Counted]) -> tuple[list[Counted], bool]:
    """Measure every case and print it beside our count."""
    print(f"{'model, what is trained':<58} {'tokens':>9} {'ours, forward + backward':>42} {'torch':>42}  equal")
    found = []
    for case in cases:
        one, said = measured(case), expected(case)
        theirs = (one.forward, one.backward)
        trained = " ".join(f"{key} {value}" for key, value in case.method.items() if key != "name")
        label = f"{case.preset} {case.method['name']} {trained}"[:58]
        sizes = f"{case.batch} x {case.tokens}"
        print(f"{label:<58} {sizes:>9} {said[0]:>20,} + {said[1]:>20,} {theirs[0]:>20,} + {theirs[1]:>20,}  "
              f"{'yes' if theirs == said else 'NO'}", flush=True)  # fmt: skip
        for name in case.beside:
            print(f"    {name}: {beside(case):,} of the forward FLOP, {BESIDE[name].formula}")
        found.append(one)
    return found, all((one.forward, one.backward) == expected(one) for one in found)


def counted(row: dict[str, Any]) -> SequenceFlop:
    """FLOP of one sequence of a published case."""
    inputs = row["inputs"]
    models = tomllib.loads((PUBLISHED / "models.toml").read_text(encoding="utf-8"))
    written = {**models[inputs["model"]], **{key: value for key, value in inputs.items() if key.startswith("num_")}}
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in written.items()}
    del fields["source"]
    recipe, cluster = Recipe(sequence_length=inputs["s"]), Cluster(gpu=H100.slug, gpus=1)
    job = resolve(Question(model=Model(**fields), recipe=recipe, layout=Layout(), cluster=cluster, gpu=H100)).workload
    return sequence_flop(job.ledger, job.recompute)


def against_vendors() -> bool:
    """Print FLOP of a token by both conventions beside the published ones."""
    tables = tomllib.loads((PUBLISHED / "flop.toml").read_text(encoding="utf-8"))
    rows = [("causal", row) for row in tables["per_token"]] + [("full", row) for row in tables["per_token_full"]]
    print(f"\n{'GFLOP of a token':<76} {'convention':<10} {'ours':>9} {'published':>9}  difference")
    far = 0
    for convention, row in rows:
        one = counted(row)
        training = one.training if convention == "causal" else one.full_training
        mine = per_token_flop(training, row["inputs"]["s"]) / 1e9
        share = mine / row["expected"] - 1
        far += abs(share) > row["tolerance"]
        print(f"{row['case']:<76} {convention:<10} {mine:>9.2f} {row['expected']:>9} {100 * share:>+9.2f} %")
    return not far


def record(cases: list[Counted]) -> None:
    """Write down what torch counts."""
    plain = [{key: value for key, value in asdict(case).items() if value} for case in cases]
    said = {
        "source": f"torch {torch.__version__}, transformers {__version__}: torch.utils.flop_counter.FlopCounterMode",
        "measured_on": datetime.now(tz=UTC).date().isoformat(),
        "conditions": CONDITIONS,
        "beside": {name: extra.formula for name, extra in BESIDE.items()},
    }
    lines = ",\n    ".join(json.dumps(row) for row in plain)
    head = json.dumps(said, indent=2)[:-2]
    COUNTS.write_text(f'{head},\n  "models": [\n    {lines}\n  ]\n}}\n', encoding="utf-8")


def main() -> None:
    wanted = [name for name in sys.argv[1:] if name != "--record"]
    found, are_equal = against_torch([case for case in recorded() if not wanted or case.preset in wanted])
    if "--record" in sys.argv and not wanted:
        record(found)
    are_near = against_vendors()
    if not are_equal:
        sys.exit("torch counts other FLOP than we do")
    if not are_near:
        sys.exit("a published figure is farther off than its row allows")


if __name__ == "__main__":
    main()
