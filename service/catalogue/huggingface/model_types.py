"""Which types of config cannot be estimated, why, and what comes nearest?"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from service.catalogue.huggingface.architectures import ARCHITECTURES
from service.errors import Problem, nearest

TEXT_PARTS: Mapping[str, str] = {
    "gemma3": "gemma3_text",
    "kimi_k25": "kimi_k2",
    "llama4": "llama4_text",
    "mistral3": "mistral",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
}
"""Types that hold a language model among other parts, and the type of that model."""


def refusal_of_type(model_type: str, config: Mapping[str, Any], path: str) -> Problem:
    """Why a config of a type without a row in ARCHITECTURES is refused.

    Args:
        model_type: the type
        config: the config
        path: dotted path of the config in the question

    Returns:
        the problem, with the nearest types that can be estimated
    """
    kind = kind_of(model_type)
    message = f"{model_type} is {kind}, which cannot be estimated" if kind else "this type of config is not known here"
    return Problem(
        field=f"{path}.model_type",
        code="model_type_unsupported" if kind else "model_type_unknown",
        message=message,
        fix=_fix(model_type, config),
    )


def kind_of(model_type: str) -> str | None:
    """What a type is that cannot be estimated.

    Args:
        model_type: the type

    Returns:
        what it is, e.g. "an encoder"; None for an unknown type
    """
    return next((kind for kind, types in _refused_types().items() if model_type in types), None)


def _fix(model_type: str, config: Mapping[str, Any]) -> str:
    inner = config.get("text_config")
    inner_type = inner.get("model_type") if isinstance(inner, Mapping) else None
    if isinstance(inner_type, str) and inner_type in ARCHITECTURES:
        return f"give its text_config alone ({inner_type}) to estimate its language model"
    known = [*ARCHITECTURES, *TEXT_PARTS]
    near = nearest(model_type.replace("-", "_"), known)
    if near:
        return f"the nearest types that can be estimated are {', '.join(near)}; or give the model inline"
    return f"types that can be estimated: {', '.join(sorted(known))}; or give the model inline"


@cache
def _refused_types() -> Mapping[str, list[str]]:
    file = files("service.catalogue.huggingface").joinpath("refused_types.json")
    types: Mapping[str, list[str]] = json.loads(file.read_text(encoding="utf-8"))["types"]
    return types
