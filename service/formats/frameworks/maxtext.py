"""MaxText: its YAML over base.yml, and the settings of its command, for GPUs.

Source: AI-Hypercomputer/maxtext@e591f30 src/maxtext/configs/base.yml and types.py (defaults; batch over all devices;
weight_dtype holds weights and moments), utils/max_utils.py (-1 is what is left of a slice, or of the slices),
layers/decoders.py (remat policies), configs/models (sizes).
"""

from collections.abc import Iterable, Sequence
from math import prod

from service.estimator.degrees import WEIGHTS
from service.formats import drafts, rules
from service.formats.composed import started
from service.formats.frameworks import trainer
from service.formats.model_names import named_model, stated
from service.formats.text import Entry

_TABLE = rules.framework_table("maxtext", *drafts.FATES, "trainings", "models", "vocabularies")
FATES = drafts.fates_of({}, _TABLE, trainer.refused_trainings(_TABLE["trainings"]))

MODELS: dict[str, str] = _TABLE["models"]
"""Rows of the catalogue by model_name."""
VOCABULARIES: dict[str, int] = _TABLE["vocabularies"]
"""Rows of the embedding, where they are others."""

_SWITCHES = {
    "use_dpo": "training by preference (DPO), with two answers at once and often a second, frozen model",
    "use_grpo": "training by rewards (GRPO), with answers that the model generates while it trains",
    "use_multimodal": "a model of images beside the language model",
    "use_audio": "a model of sounds beside the language model",
}
"""Settings that turn on what is not estimated."""

_SIZES = {
    "base_emb_dim": ("hidden_size", 2048),
    "base_num_query_heads": ("num_attention_heads", 16),
    "base_num_kv_heads": ("num_key_value_heads", 16),
    "base_mlp_dim": ("intermediate_size", 7168),
    "base_num_decoder_layers": ("num_hidden_layers", 16),
    "head_dim": ("head_dim", 128),
    "vocab_size": ("vocab_size", 32000),
}
_EXPERTS = ("num_experts", "num_experts_per_tok", "base_moe_mlp_dim")
_BLOCKS = ("llama2", "mistral", "mixtral")
"""Blocks of decoders that sizes alone describe."""

_QUANTIZATIONS = {
    **{"": "", "te_mxfp8": "mxfp8"},
    **dict.fromkeys(("fp8", "fp8_gpu", "te_fp8_delayedscaling", "te_fp8_currentscaling"), "fp8-tensorwise"),
}
_KERNELS = {
    **dict.fromkeys(("autoselected", "flash", "cudnn_flash_te", "cudnn_flash_jax"), "flash"),
    "dot_product": "eager",
}
_OPTIMIZERS = {"adamw": "adamw", "adam_pax": "adamw", "sgd": "sgd", "muon": "muon"}
_XLA = "JAX's compiler plans memory, which is not modelled; POST /v1/estimates gives its order of size"


def read_maxtext(entries: Sequence[Entry]) -> drafts.Draft:
    """The draft of a file or a command."""
    run = started(entries, shipped="base.yml")
    draft = drafts.draft_of(run.entries, FATES)
    _refuse_others(draft)
    _put_layout(draft)
    _put_model(draft)
    _put_batch(draft)
    recipe = draft.recipe
    recipe["optimizer"] = draft.chosen(
        "opt_type", {"adam_pax": "adamw", "adamw": "adamw", "sgd": "sgd", "muon": "muon"}, "adamw"
    )
    recipe["precision"] = _precision(draft)
    recipe["attention"] = draft.chosen("attention", _KERNELS, "autoselected")
    recipe["recompute"] = "full"
    if draft.get("remat_policy", "full") != "full":
        recipe["recompute"] = "none"
        draft.not_understood("remat_policy", "some results are kept and others computed again or sent to the host")
    if draft.get("dropout_rate") and draft.get("enable_dropout", True):
        recipe["dropout_fraction"] = draft.settings["dropout_rate"]
    recipe["stack"] = {"name": "torchtitan", "implementation": "compiled"}
    return draft


def _refuse_others(draft: drafts.Draft) -> None:
    trainer.refuse_trainings(draft, _TABLE["trainings"])
    for name, what in _SWITCHES.items():
        if name in draft.fates and draft.fates[name].fate == "not_understood":
            raise trainer.not_estimated(draft, name, what)
    if not draft.get("base_config", "base.yml").endswith("base.yml"):
        draft.not_understood("base_config", "the file under it may set anything")
    hardware = draft.get("hardware", "")
    if hardware in ("tpu", "cpu"):
        message = "names hardware that is no GPU, and every question is about GPUs"
        raise draft.wrong("hardware", "not_a_gpu", message, "set hardware to gpu, as for GPUs")
    draft.chosen("hardware", dict.fromkeys(("", "gpu", "gpu_multiprocess"), True), "")
    draft.not_understood("hardware", _XLA if hardware else f"it is tpu where it is not given; {_XLA}")


def _degree(draft: drafts.Draft, axes: Iterable[str]) -> int | None:
    """GPUs along some axes, in a slice and over slices; None where one is what is left."""
    given = [
        draft.get(f"{part}_{axis}_parallelism", _DEFAULTS.get((part, axis), 1))
        for axis in axes
        for part in ("ici", "dcn")
    ]
    return None if -1 in given else prod(max(1, one) for one in given)


_DEFAULTS = {("ici", "fsdp"): -1, ("dcn", "data"): -1}
"""Axes that take what is left unless they are given."""


def _put_layout(draft: drafts.Draft) -> None:
    layout = draft.layout
    named = {"tensor": ("tensor", "tensor_sequence"), "context": ("context", "sequence"), "pipeline": ("pipeline",)}
    for field, axes in (*named.items(), ("expert", ("expert",))):
        found = _degree(draft, axes)
        if found is None:
            setting = next(one for one in draft.settings if one.endswith(tuple(f"{axis}_parallelism" for axis in axes)))
            draft.not_understood(setting, "it takes what is left of the GPUs, and it is no axis of replicas")
        layout[field] = found or 1
    shards, replicas = _degree(draft, ("fsdp", "fsdp_transpose")), _degree(draft, ("data",))
    layout["zero_stage"] = 0 if shards == 1 and layout["context"] == 1 else 3
    if layout["zero_stage"] == WEIGHTS:
        layout["reshard_after_forward"] = True
    if shards is not None and replicas is not None:
        layout["data"] = shards * replicas * layout["expert"]
        if layout["zero_stage"] == WEIGHTS and replicas > 1:
            layout["shard_group"] = shards * layout["expert"] * layout["context"]
    elif shards is not None and shards > 1 and layout["zero_stage"] == WEIGHTS:
        layout["shard_group"] = shards * layout["expert"] * layout["context"]
        draft.assumptions.append(f"dcn_data_parallelism is what is left: {drafts.FROM_GPUS}")
    else:
        draft.shard_groups = replicas if replicas is not None and replicas > 1 else None
        draft.assumptions.append("all GPUs of a slice shard the weights: give layout.shard_group for several slices")
    if layout["pipeline"] > 1:
        draft.not_understood(_given(draft, "pipeline"), "its pipeline goes round its stages in a way of its own")
    if layout["context"] > 1:
        kinds = {"all_gather": "all-gather", "ring": "ring", "ulysses": "ulysses"}
        layout["context_method"] = draft.chosen("context_parallel_strategy", kinds, "all_gather")
    is_moved = draft.get("optimizer_memory_host_offload", False), draft.get("parameter_memory_host_offload", False)
    layout["offload"] = "model" if all(is_moved) else "optimizer" if is_moved[0] else "none"
    if is_moved[1] and not is_moved[0]:
        draft.not_understood("parameter_memory_host_offload", "weights alone wait in host memory")


def _given(draft: drafts.Draft, axis: str) -> str:
    """The setting that gives an axis."""
    return next(name for name in (f"ici_{axis}_parallelism", f"dcn_{axis}_parallelism") if draft.get(name, 1) != 1)


def _put_model(draft: drafts.Draft) -> None:
    name = draft.get("model_name", "default")
    sized = [one for one in (*_SIZES, *_EXPERTS, "decoder_block", "logits_via_embedding") if one in draft.settings]
    if name != "default":
        draft.model = MODELS.get(name)
        row = named_model(MODELS[name]).model if name in VOCABULARIES else None
        if row is not None:
            draft.model = {**stated(row), "vocab_size": VOCABULARIES[name]}
        for one in sized:
            draft.not_understood(one, "it changes the sizes that model_name has")
        if draft.model is None:
            draft.assumptions.append("no model: model_name is none whose sizes are known here: give model")
        return
    if draft.get("decoder_block", "llama2") not in _BLOCKS:
        draft.not_understood("decoder_block", "its layers are of another kind: give model")
        return
    draft.model = {field: draft.get(one, default) for one, (field, default) in _SIZES.items()}
    draft.model["tie_word_embeddings"] = draft.get("logits_via_embedding", False)
    draft.model["gated_mlp"] = len(draft.get("mlp_activations", ("silu", "linear"))) > 1
    if draft.get("num_experts", 1) > 1:
        draft.model["num_experts"] = draft.settings["num_experts"]
        draft.model["num_experts_per_tok"] = draft.get("num_experts_per_tok", 1)
        own = draft.get("base_moe_mlp_dim", -1)
        draft.model["moe_intermediate_size"] = own if own > 0 else draft.model["intermediate_size"]


def _put_batch(draft: drafts.Draft) -> None:
    """The batch, which counts every GPU, those that split one sequence too."""
    recipe, layout = draft.recipe, draft.layout
    recipe["sequence_length"] = draft.get("max_target_length", 2048)
    ranks = layout["tensor"] * layout["context"] * layout["pipeline"]
    each = draft.get("per_device_batch_size", 12.0) * ranks
    if each < 1 or each != int(each):
        draft.not_understood("per_device_batch_size", "it gives a replica no whole number of sequences")
        each = max(1, int(each))
    recipe["micro_batch"] = int(each)
    draft.accumulation_steps = draft.get("gradient_accumulation_steps", 1)
    if "data" in layout:
        recipe["global_batch"] = int(each) * draft.accumulation_steps * layout["data"]
        draft.accumulation_steps = None
    if draft.get("steps", -1) > 0:
        draft.training_steps = draft.settings["steps"]
    if draft.get("capacity_factor", -1.0) > 0:
        recipe["expert_capacity_factor"] = draft.settings["capacity_factor"]


def _precision(draft: drafts.Draft) -> str:
    formats = {"bfloat16": "bf16", "float32": "fp32"}
    computes = draft.chosen("dtype", formats, "bfloat16")
    keeps = draft.chosen("weight_dtype", formats, "float32")
    if "fp32" in (computes, keeps) and computes == "fp32":
        if keeps != "fp32":
            draft.not_understood("weight_dtype", "weights are narrower than what computes with them")
        return "fp32"
    quantization = draft.get("quantization", "")
    if quantization not in _QUANTIZATIONS or (quantization and keeps != "fp32"):
        draft.not_understood("quantization", "matrix products are in few bits by a recipe that is not modelled")
    elif quantization:
        return _QUANTIZATIONS[quantization]
    return "bf16-mixed" if keeps == "fp32" else "bf16-pure"
