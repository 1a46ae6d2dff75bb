"""Import of a Hugging Face config.json: the model, assumptions, and warnings of keys without effect."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from service.catalogue.bounds import faults_of
from service.catalogue.huggingface import rules
from service.catalogue.huggingface.config import MOST, Config, Dialect, data_of, read_from
from service.catalogue.huggingface.rules import CHUNKED, FULL, SLIDING, Builder, shortest_period
from service.errors import Problem, Refused, nearest
from service.estimator.model.build import MIXER_FIELDS, MIXERS
from service.estimator.question import LayerType, Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """The description of one type of config."""

    reads: tuple[str, ...]
    """Fields of Model that a key holds."""
    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)
    """Fields of Model that the type's code fixes."""
    builders: tuple[Builder, ...] = ()
    """Functions that read the rest."""
    demands: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Supported values by key; any other is refused."""
    without_effect: tuple[str, ...] = ()
    """Keys of the architecture without effect in this type."""


@cache
def architectures() -> Mapping[str, Architecture]:
    """Every type, by its `model_type`."""
    data = data_of("architectures")
    found: dict[str, Architecture] = {}
    for name, row in data["types"].items():
        found[name] = found[row] if isinstance(row, str) else _architecture(row, data["groups"])
    return found


def _rule(spec: str | list[Any]) -> Any:
    """A rule by its name; a list calls the function of its first name with the rest."""
    if isinstance(spec, str):
        return getattr(rules, spec)
    name, *arguments = spec
    return _rule(name)(*(_rule(one) if isinstance(one, list) else one for one in arguments))


def _architecture(row: Mapping[str, Any], groups: Mapping[str, list[str]]) -> Architecture:
    def frozen(part: str) -> dict[str, Any]:
        values = row.get(part, {}).items()
        return {key: tuple(value) if isinstance(value, list) else value for key, value in values}

    return Architecture(
        reads=tuple(field for read in row["reads"] for field in groups.get(read, [read])),
        keys=frozen("keys"),
        fixed=frozen("fixed"),
        builders=tuple(map(_rule, row.get("rules", ()))),
        demands=frozen("demands"),
        without_effect=tuple(row.get("without_effect", ())),
    )


SPARSE_ONLY = (
    "num_experts_per_tok",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "shared_expert_gate",
    "router_bias",
    "first_k_dense_replace",
    "moe_latent_size",
    "zero_expert_num",
)


def canonical(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of a Model without defaults and repetitions."""
    result = _feed_forward(_attention({name: value for name, value in fields.items() if value is not None}))
    if result.get("attention_out_bias") == result.get("attention_bias", False):
        result.pop("attention_out_bias", None)
    if result.get("word_embed_proj_dim") == result["hidden_size"]:
        del result["word_embed_proj_dim"]
    return result


def _attention(fields: dict[str, Any]) -> dict[str, Any]:
    heads = fields["num_attention_heads"]
    if fields.get("num_key_value_heads") == heads:
        del fields["num_key_value_heads"]
    if fields.get("head_dim", 0) * heads == fields["hidden_size"]:
        del fields["head_dim"]
    pattern = fields.pop("layer_types", None)
    if pattern is None:
        return fields
    period: tuple[LayerType, ...] = shortest_period(pattern)
    if SLIDING not in period:
        fields.pop("sliding_window", None)
    if CHUNKED not in period:
        fields.pop("attention_chunk_size", None)
    read = {name for mixer in period for name in (*MIXERS[mixer].required_fields, *MIXERS[mixer].optional_fields)}
    result = {name: value for name, value in fields.items() if name in read or name not in MIXER_FIELDS}
    result.setdefault("num_attention_heads", 0)
    return result if period in ((FULL,), (SLIDING,)) else {**result, "layer_types": period}


def _feed_forward(fields: dict[str, Any]) -> dict[str, Any]:
    pattern = shortest_period(fields.pop("mlp_layer_types", ()) or ("sparse",))
    if not fields.get("num_experts") or not any("sparse" in mlp for mlp in pattern):
        dense = {name: value for name, value in fields.items() if name not in (*SPARSE_ONLY, "num_experts")}
        return {**dense, "mlp_layer_types": pattern} if "none" in pattern else dense
    if pattern != ("sparse",):
        fields["mlp_layer_types"] = pattern
    elif not fields.get("first_k_dense_replace"):
        fields.pop("intermediate_size", None)
    if fields.get("moe_intermediate_size") == fields.get("intermediate_size"):
        fields.pop("moe_intermediate_size", None)
    if not fields.get("shared_expert_intermediate_size"):
        fields.pop("shared_expert_gate", None)
    return fields


TEXT_PARTS: Mapping[str, str] = {
    "gemma3": "gemma3_text",
    "kimi_k25": "kimi_k2",
    "llama4": "llama4_text",
    "mistral3": "mistral",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
}
"""Types with a language model among other parts, and the type of that model."""


def refusal_of_type(model_type: str, config: Mapping[str, Any], path: str) -> Problem:
    """The refusal of a config whose type has no row in architectures.json."""
    kind = kind_of(model_type)
    message = f"{model_type} is {kind}, which cannot be estimated" if kind else "this type of config is not known here"
    return Problem(
        field=f"{path}.model_type",
        code="model_type_unsupported" if kind else "model_type_unknown",
        message=message,
        fix=_fix(model_type, config),
    )


def kind_of(model_type: str) -> str | None:
    """The family of an unsupported type."""
    return next((kind for kind, types in data_of("refused_types")["types"].items() if model_type in types), None)


def _fix(model_type: str, config: Mapping[str, Any]) -> str:
    inner = config.get("text_config")
    inner_type = inner.get("model_type") if isinstance(inner, Mapping) else None
    if isinstance(inner_type, str) and inner_type in architectures():
        return f"give its text_config alone ({inner_type}) to estimate its language model"
    known = [*architectures(), *TEXT_PARTS]
    near = nearest(model_type.replace("-", "_"), known)
    if near:
        return f"the nearest types that can be estimated are {', '.join(near)}; or give the model inline"
    return f"types that can be estimated: {', '.join(sorted(known))}; or give the model inline"


PATH = "model.hf_config"

MOST_NAMED = 8
"""Unread keys that a warning names."""

LANGUAGE_MODEL = re.compile(r"(ForCausalLM|LMHeadModel|ForConditionalGeneration)$")
"""Suffixes of class names with a language-model head."""

SCORING = re.compile(r"For(Sequence|Token)Classification$")
"""Suffixes of class names with a head for classes, which reward models and critics have with one."""

CLASSES = 2
"""Classes where a config names none. Source: transformers 5.23.0 configuration_utils.PreTrainedConfig."""

DEFINING = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
"""Fields without which a config describes little more than its type."""

PLAIN_KEY = re.compile(r"[A-Za-z0-9_.-]{1,40}")
"""Keys that a warning may repeat."""

ALWAYS_DEMANDED: Mapping[str, tuple[Any, ...]] = {
    "add_cross_attention": (None, False),
    "is_encoder_decoder": (None, False),
    "pruned_heads": (None, {}),
}


@dataclass(frozen=True, slots=True)
class Imported:
    """A model read from a config."""

    model: Model
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    """Contents of the config without effect here."""


def import_config(config: Mapping[str, Any]) -> Imported:
    """The model that a config.json describes."""
    model_type, path = _model_type(config, PATH), PATH
    assumptions: list[str] = []
    warnings, classes = list(_warnings_of_whole(config)), classes_of(config)
    if model_type in TEXT_PARTS or isinstance(config.get("text_config"), Mapping):
        config, model_type, path = _text_part(config, model_type)
        assumptions.append("text_config is used; the model's other parts are left out")
    if model_type not in architectures():
        raise Refused(refusal_of_type(model_type, config, path))
    architecture = architectures()[model_type]
    read = Config(config, Dialect(model_type, architecture.keys), path)
    fields = canonical(_fields(architecture, read))
    model = Model(**fields, scalar_head=classes is not None)
    faults = faults_of(model)
    if faults:
        raise Refused(
            *(
                Problem(
                    field=path,
                    code=fault.code,
                    message=fault.message(f"what the keys make of {name}"),
                    fix=f"mend the keys that {name} follows from",
                )
                for name, fault in faults.items()
            )
        )
    assumptions.extend(read.notes)
    if read.assumed:
        taken = ", ".join(f"{key} {json.dumps(value)}" for key, value in read.assumed.items())
        assumptions.append(f"not in the config, so as {read_from(model_type)} has it for {model_type}: {taken}")
    if classes is not None:
        assumptions.append(
            "architectures names a head for classes: scalar_head is set, without the bias that some have"
        )
    return Imported(model, tuple(assumptions), (*warnings, *_warnings_of_keys(architecture, read)))


def _model_type(config: Mapping[str, Any], path: str) -> str:
    model_type = config.get("model_type")
    if isinstance(model_type, str):
        return model_type
    wrong = "is missing" if model_type is None else "is not text"
    raise Refused(
        Problem(
            field=f"{path}.model_type",
            code="model_type_missing",
            message=f"model_type {wrong}; the same keys mean different models under different types",
            fix='give it as the model\'s own config.json has it, e.g. "llama"',
        )
    )


def _text_part(config: Mapping[str, Any], model_type: str) -> tuple[Mapping[str, Any], str, str]:
    if model_type not in TEXT_PARTS and model_type not in architectures():
        raise Refused(refusal_of_type(model_type, config, PATH))
    inner, path = config.get("text_config"), f"{PATH}.text_config"
    if not isinstance(inner, Mapping):
        message = "text_config is missing or not an object, and this type keeps its language model there"
        raise Refused(Problem(field=path, code="required", message=message, fix="give the whole config.json"))
    if "tie_word_embeddings" in config and "tie_word_embeddings" not in inner:
        inner = {**inner, "tie_word_embeddings": config["tie_word_embeddings"]}
    if "model_type" not in inner:
        return inner, TEXT_PARTS.get(model_type, model_type), path
    return inner, _model_type(inner, path), path


def _fields(architecture: Architecture, read: Config) -> dict[str, Any]:
    """Fields of the Model; the keys of single fields are all checked before anything is refused."""
    fields = dict(architecture.fixed)
    problems: list[Problem] = []
    for key, allowed in {**ALWAYS_DEMANDED, **architecture.demands}.items():
        with _collected(problems):
            read.demand(key, allowed)
    for name in architecture.reads:
        with _collected(problems):
            fields[name] = read.field(name)
    if problems:
        raise Refused(*dict.fromkeys(problems))
    for build in architecture.builders:
        fields |= build(read)
    return fields


@contextmanager
def _collected(problems: list[Problem]) -> Iterator[None]:
    try:
        yield
    except Refused as refused:
        problems.extend(refused.problems)


def _warnings_of_whole(config: Mapping[str, Any]) -> Iterator[str]:
    if config.get("quantization_config"):
        yield "quantization_config is not used: recipe.precision says in which formats the model is trained"
    classes = classes_of(config)
    if classes is not None and classes > 1:
        yield (
            f"the head has {classes} classes and is estimated with one: scalar_head stands for it, and {classes - 1} x "
            "hidden_size of its numbers are left out; give num_labels 1 for a reward model or a critic"
        )
    elif classes is None and named_classes(config) and not any(map(LANGUAGE_MODEL.search, named_classes(config))):
        yield (
            "architectures names no language model; the model is estimated with a head over its vocabulary: set "
            "scalar_head for a reward model or a critic"
        )


def named_classes(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Classes of transformers that a config is saved from."""
    names = config.get("architectures")
    return tuple(map(str, names)) if isinstance(names, list) else ()


def classes_of(config: Mapping[str, Any]) -> int | None:
    """Classes of a head for classes; None where the config names none such."""
    if not any(map(SCORING.search, named_classes(config))):
        return None
    labels, given = config.get("id2label"), config.get("num_labels")
    counted = len(labels) if isinstance(labels, Mapping) else CLASSES
    classes = counted if given is None else given
    if type(classes) is not int or not 1 <= classes <= MOST:
        path, message = f"{PATH}.num_labels", f"is no whole number from 1 to {MOST}"
        raise Refused(Problem(field=path, code="out_of_range", message=message, fix="give 1 for a scalar head"))
    return classes


def _warnings_of_keys(architecture: Architecture, read: Config) -> Iterator[str]:
    keys = [key for field in DEFINING for key in architecture.keys.get(field, (field,))]
    absent = [key for key in keys if key in read.assumed]
    if absent:
        named = ", ".join(absent)
        yield f"the config lacks what defines a model ({named}); the type's defaults stand in, perhaps another model's"
    harmless = keys_without_effect()
    known = read.understood | harmless | set(architecture.without_effect)
    unread = [key for key in read.values if key not in known and key.rpartition(".")[2] not in harmless]
    if unread:
        named = ", ".join(key if PLAIN_KEY.fullmatch(key) else "(no plain name)" for key in unread[:MOST_NAMED])
        more = f" and {len(unread) - MOST_NAMED} more" if len(unread) > MOST_NAMED else ""
        yield f"keys of the config that are neither used nor known to change nothing: {named}{more}"


@cache
def keys_without_effect() -> frozenset[str]:
    """Keys of any type that change neither parameters nor operations."""
    return frozenset(key for keys in data_of("keys_without_effect").values() for key in keys)
