"""OpenAPI of plans: a question with open fields, and the plans that come back."""

from typing import Any

from service.api.openapi import (
    CLUSTER_FORMS,
    EVENTS,
    JSON,
    NAME,
    Schema,
    bare,
    described,
    nullable,
    object_schema,
    parameter_ref,
    ref,
    request_body,
    undefaulted,
)
from service.api.queries import REV
from service.features.plans.schemas import CLUSTERS, MOST_CLUSTERS, MOST_VALUES, SEARCHED, VALUE_IS_A_LIST, WHY_NOT

RECIPE: dict[str, Any] = {"sequence_length": 8192, "global_batch": 512, "training_tokens": 2e12}
JOB: dict[str, Any] = {"model": "llama-3.1-70b", "recipe": RECIPE, "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 256}}

PLANS: dict[str, Schema] = {
    "everything-open": {"summary": "The fastest layouts of Llama 3.1 70B on 256 H100", "value": JOB},
    "pinned-and-restricted": {
        "summary": "Tensor 8 and ZeRO 1 or 3, and why another layout is not the best",
        "value": {
            **JOB,
            "layout": {"tensor": 8, "zero_stage": [1, 3]},
            "price": {"usd_per_gpu_hour": 2.5},
            "top": 3,
            WHY_NOT: {"layout": {"tensor": 8, "pipeline": 4}, "recipe": {"recompute": "full"}},
        },
    },
    "cheapest-in-time": {
        "summary": "The cheapest number of GPUs for 60 days, a tenth of the memory kept free",
        "value": {
            **JOB,
            "recipe": {**RECIPE, "recompute": ["none", "selective"]},
            "price": {"usd_per_gpu_hour": 2.5},
            "objective": "cost",
            "limits": {"days": 60, "gpus": [128, 512], "headroom_fraction": 0.1},
        },
    },
}
"""Request bodies that POST /v1/plans answers."""

MEANING = (
    "A question whose layout, micro-batch and recompute are open: a value pins a field, a list restricts it, and "
    "what is left out is chosen."
)


def plan_schemas(spelled: dict[str, Schema], question: Schema) -> dict[str, Schema]:
    """Schemas of plans."""
    options = spelled.pop("PlanOptions")["properties"]
    opened = {part: _opened(spelled[f"{spec.__name__}-Input"], names) for part, (spec, names) in SEARCHED.items()}
    clusters: Schema = {
        "type": "array",
        "description": "Clusters to plan on, in place of cluster.",
        "items": {"anyOf": [NAME, *map(ref, CLUSTER_FORMS)]},
        "minItems": 1,
        "maxItems": MOST_CLUSTERS,
    }
    fixed_fields = {name: schema for name, schema in question["properties"].items() if name not in SEARCHED}
    open_parts: dict[str, Schema] = {
        "recipe": described("How it is trained.", ref("OpenRecipe")),
        "layout": nullable(described("How it is divided; null where all of it is open.", ref("OpenLayout"))),
        WHY_NOT: described("A layout of which is asked why it is not the best.", ref("WhyNotPlan")),
    }
    properties = {**fixed_fields, **open_parts, CLUSTERS: clusters, **options}
    return {
        "OpenLayout": opened["layout"],
        "OpenRecipe": opened["recipe"],
        "WhyNotPlan": _asked_after(spelled["Recipe-Input"]),
        "PlanRequest": object_schema(MEANING, ["model", "recipe"], properties),
    }


def plan_operation() -> Schema:
    """OpenAPI of plans."""
    events_text = (
        "Events: progress, with counts so far; then plans, with the answer, or problem, with the problem document."
    )
    forms = {JSON: {"schema": ref("PlanAnswer")}, EVENTS: {"schema": {"description": events_text}}}
    return {
        "description": "Every legal layout is worked out by the formulas of estimates. A caller that accepts "
        f"{EVENTS} gets the progress of the search; hanging up ends it.",
        "parameters": [parameter_ref(REV)],
        "requestBody": request_body(ref("PlanRequest"), PLANS),
        "responses": {"200": {"description": "The plans.", "content": forms}},
    }


def _opened(spec: Schema, names: tuple[str, ...]) -> Schema:
    """Schema of a part with fields that may be lists of choices."""
    fields = {name: _or_list(name, one) if name in names else one for name, one in spec["properties"].items()}
    return {**spec, "description": f"{spec['description']} A list restricts a field.", "properties": fields}


def _or_list(name: str, schema: Schema) -> Schema:
    if name in VALUE_IS_A_LIST:
        return schema
    own = bare(schema)
    options = own.get("anyOf", [own])
    plain = [option for option in options if option.get("type") != "null"]
    item = plain[0] if len(plain) == 1 else {"anyOf": plain}
    several = {"type": "array", "items": item, "minItems": 1, "maxItems": MOST_VALUES}
    return {"anyOf": [*options, several], "description": schema.get("description", "")}


def _asked_after(recipe: Schema) -> Schema:
    """Schema of the layout to explain, with the searched fields of the recipe."""
    _, names = SEARCHED["recipe"]
    fields = {name: undefaulted(recipe["properties"][name]) for name in names}
    chosen = object_schema("What is chosen of the recipe.", [], fields)
    return object_schema("One plan out of all that are legal.", [], {"layout": ref("Layout-Input"), "recipe": chosen})
