"""Every frozen config counted again by transformers on the meta device; --fuzz N varies each type."""

import argparse
import importlib
import json
import random
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from service.catalogue.huggingface import import_config
from service.catalogue.huggingface.config import defaults_of
from service.catalogue.huggingface.importing import TEXT_PARTS, architectures, kind_of
from service.errors import Refused
from service.estimator import count_parameters
from service.estimator.model.build import layer_type
from tests.catalogue.shapes import letter_of

FROZEN = Path("tests/catalogue/meta_device_counts.json")
NEEDED = ("torch", "transformers")
LISTED_UNDER = ("layer_types", "attention_layers", "layers_block_type")
"""Where a config object says the attention of each layer."""
LETTERS = {"global": "f", "local": "s", "conv": "l", "moe": "n", "mlp": "n"}
"""Names of attention whose first letter is not that of the layer kind."""
SIZES: dict[str, tuple[Any, ...]] = {
    "vocab_size": (100, 1001),
    "hidden_size": (64, 128, 192),
    "num_hidden_layers": (1, 2, 3, 5, 8),
    "num_attention_heads": (4, 8),
    "num_key_value_heads": (1, 2, 4, None),
    "head_dim": (8, 16),
    "intermediate_size": (96, 128, 300),
    "moe_intermediate_size": (24, 40),
    "shared_expert_intermediate_size": (33, 48),
    "max_position_embeddings": (64, 128),
    "num_experts": (2, 4),
    "num_experts_per_tok": (1, 2),
    "first_k_dense_replace": (0, 1, 2),
    "sliding_window": (16, 32, None),
}
"""Small values that a variation may give to a field."""
UNVARIED = {"mpt": ("expansion_ratio", "no_bias")}
"""Keys that transformers ignores and the importer reads as the model's makers do, and says so."""


class Count(NamedTuple):
    """What one model is, by one implementation."""

    total: int
    """Trained parameters."""
    attention: str | None
    """One letter a layer; None where the implementation does not say."""


class Refusal(NamedTuple):
    """Why an implementation builds no model from a config."""

    reason: str


def counted_there(config: dict[str, Any]) -> Count | Refusal:
    """What transformers builds from a config."""
    torch, transformers = (importlib.import_module(name) for name in NEEDED)
    try:
        read = transformers.AutoConfig.for_model(**config)
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(read)
    except Exception as error:  # a config that it refuses may fail anywhere
        return Refusal(f"{type(error).__name__}: {error}".splitlines()[0])
    total = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    return Count(total - unused(read), attention_of(read))


def attention_of(config: Any) -> str | None:
    """Attention of each layer by a config object; None where only the modeling code knows."""
    listed = next((names for key in LISTED_UNDER if (names := getattr(config, key, None))), None)
    if listed is not None:
        return "".join(LETTERS.get(name, name[0]) for name in listed)
    letter = "s" if getattr(config, "sliding_window", None) else "f"
    return letter * getattr(config, "num_hidden_layers", 0) or None


def counted_here(config: dict[str, Any]) -> Count | Refusal:
    """What the importer makes of a config."""
    try:
        model = import_config(config).model
    except Refused as refused:
        return Refusal(refused.problems[0].message)
    attention = "".join(letter_of(layer_type(model, layer)) for layer in range(model.num_hidden_layers))
    return Count(count_parameters(model).total, attention)


def unused(config: Any) -> int:
    """Numbers that a class makes for experts that do nothing: no token reaches them, no published file holds them."""
    if config.model_type != "longcat_flash":
        return 0
    one = 2 * config.expert_ffn_hidden_size * config.hidden_size
    rows: int = config.num_layers * (config.zero_expert_num or 0) * one
    return rows


def differ(one: Count, other: Count) -> bool:
    """Whether two counts contradict each other."""
    said = one.attention is not None and other.attention is not None
    return one.total != other.total or (said and one.attention != other.attention)


def frozen_cases() -> dict[str, list[dict[str, Any]]]:
    """Every frozen case by type, from all lists of the file."""
    lists = (cases for cases in json.loads(FROZEN.read_text(encoding="utf-8")).values() if isinstance(cases, list))
    by_type = defaultdict(list)
    for case in (case for cases in lists for case in cases):
        by_type[case["config"]["model_type"]].append(case)
    return dict(sorted(by_type.items()))


def varied(rng: random.Random, configs: list[dict[str, Any]]) -> dict[str, Any]:
    """One config of a type with some keys of another one, some small sizes and some flags turned."""
    config, other = dict(rng.choice(configs)), rng.choice(configs)
    model_type = config["model_type"]
    row, defaults = architectures()[model_type], defaults_of(model_type)
    config |= {key: value for key, value in other.items() if rng.random() < 0.3}
    for field, values in SIZES.items():
        keys = [key for key in row.keys.get(field, (field,)) if key in defaults]
        if keys and rng.random() < 0.4:
            config[keys[0]] = rng.choice(values)
    flags = [key for key, value in defaults.items() if isinstance(value, bool) and rng.random() < 0.3]
    config |= {key: rng.random() < 0.5 for key in flags}
    return nested({key: value for key, value in config.items() if key not in UNVARIED.get(model_type, ())})


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    """A config whose dotted keys stand in objects of their own."""
    config = {key: value for key, value in flat.items() if "." not in key}
    for key, value in flat.items():
        outer, dot, inner = key.partition(".")
        if dot:
            config[outer] = config.get(outer, {}) | {inner: value}
    return config


def fuzzed(model_type: str, configs: list[dict[str, Any]], tries: int) -> Iterator[str]:
    """Each way in which a variation ended: equal, refused by one side, or a line on what differs."""
    rng = random.Random(model_type)  # noqa: S311 - the same variations every time
    for _ in range(tries):
        config = varied(rng, configs)
        here, there = counted_here(config), counted_there(config)
        if isinstance(here, Count) and isinstance(there, Count):
            yield f"DIFFERS: {here} here, {there} there: {json.dumps(config)}" if differ(here, there) else "equal"
        elif isinstance(here, Refusal) and isinstance(there, Refusal):
            yield "refused by both"
        else:
            yield "refused here" if isinstance(here, Refusal) else "refused there"


def saved_defaults(model_type: str) -> str:
    """How a config with a type's defaults ended: without keys, and with every key that transformers saves."""
    here, there = counted_here({"model_type": model_type}), counted_there({"model_type": model_type})
    if isinstance(here, Refusal) or isinstance(there, Refusal):
        return "defaults alone make no model"
    read = importlib.import_module("transformers").AutoConfig.for_model(model_type)
    saved = json.loads(read.to_json_string(use_diff=False))
    whole, warned = counted_here(saved), import_config(saved).warnings
    wrong = isinstance(whole, Refusal) or differ(whole, there) or differ(here, there) or warned
    return f"DIFFERS: {here} and {whole} here, {there} there, by defaults; {warned}" if wrong else "defaults equal"


def unknown_types() -> list[str]:
    """Types with a causal language model in transformers that the importer neither reads nor refuses by name."""
    module = importlib.import_module("transformers.models.auto.modeling_auto")
    known = {*architectures(), *TEXT_PARTS}
    return [name for name in module.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES if name not in known and not kind_of(name)]


def recounted(case: dict[str, Any]) -> str:
    """How a frozen case ended; a type that transformers does not have keeps its published count."""
    frozen = Count(case["total"], case.get("attention"))
    here, there = counted_here(case["config"]), counted_there(case["config"])
    has_class = not isinstance(there, Refusal) or "Unrecognized model identifier" not in there.reason
    counts = (here, there) if has_class else (here,)
    wrong = [count for count in counts if isinstance(count, Refusal) or differ(frozen, count)]
    if wrong:
        return f"DIFFERS: {wrong[0]}, frozen {frozen}: {json.dumps(case['config'])}"
    return "equal" if has_class else "equal to what is published"


def tallied(ends: list[str]) -> str:
    """How often cases ended in each way."""
    return ", ".join(f"{times} {end}" for end, times in Counter(end.partition(":")[0] for end in ends).items())


def compared(model_type: str, cases: list[dict[str, Any]], tries: int) -> list[str]:
    """Print how the cases of a type, its defaults and its variations ended; give those that differ."""
    ends = [recounted(case) for case in cases]
    fuzz = list(fuzzed(model_type, [case["config"] for case in cases], tries))
    defaults = saved_defaults(model_type)
    varied_too = f"; varied: {tallied(fuzz)}" if fuzz else ""
    print(f"{model_type}: {tallied(ends)}, {defaults.partition(':')[0]}{varied_too}", flush=True)
    wrong = [end for end in (*ends, defaults, *fuzz) if end.startswith("DIFFERS")]
    for end in wrong:
        print(f"  {end}")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fuzz", type=int, default=0, metavar="N", help="variations of each type to try too")
    parser.add_argument("--only", nargs="*", help="types to count; all where absent")
    asked = parser.parse_args()
    try:
        versions = " and ".join(f"{name} {importlib.import_module(name).__version__}" for name in NEEDED)
    except ImportError as error:
        sys.exit(f"{error.name} is not installed here: pip install {' '.join(NEEDED)}")
    warnings.simplefilter("ignore")
    importlib.import_module("transformers").logging.set_verbosity_error()
    types = {name: cases for name, cases in frozen_cases().items() if not asked.only or name in asked.only}
    differing = sum(len(compared(name, cases, asked.fuzz)) for name, cases in types.items())
    print(f"{len(types)} types, {sum(map(len, types.values()))} frozen configs, counted by {versions}")
    if unknown_types():
        print(f"types of transformers that are neither read nor refused by name: {', '.join(unknown_types())}")
    if differing:
        sys.exit(f"{differing} configs differ")


if __name__ == "__main__":
    main()
