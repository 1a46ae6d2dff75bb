"""What would have been right here: a field's JSON schema said in words, for the fix of a refusal."""

from collections.abc import Mapping, Sequence
from typing import Any

Schema = Mapping[str, Any]

MOST_DIGITS = 1e16
"""Bounds from here on are said as powers of ten."""


def schema_at(root: Schema, steps: Sequence[int | str]) -> Schema:
    """The schema of one field of a noun.

    Args:
        root: JSON schema of the noun
        steps: names and list positions that lead to the field

    Returns:
        the field's schema, its description kept; empty where the path leads nowhere
    """
    schema = root
    for step in steps:
        options = [_follow(root, option) for option in schema.get("anyOf", (schema,))]
        nearer = [s for option in options for s in (_step_into(option, step),) if s is not None]
        schema = nearer[0] if nearer else {}
    return {**_follow(root, schema), **schema}


def names_at(root: Schema, steps: Sequence[int | str]) -> set[str]:
    """The fields that an object inside a noun may hold.

    Args:
        root: JSON schema of the noun
        steps: names and list positions that lead to the object

    Returns:
        their names; where the place takes several forms, of all of them
    """
    schema = schema_at(root, steps)
    return {name for option in schema.get("anyOf", (schema,)) for name in _follow(root, option).get("properties", ())}


def expectation_of(schema: Schema) -> str:
    """What a schema allows, as a noun phrase.

    Args:
        schema: JSON schema of one field

    Returns:
        e.g. `a whole number from 1 to 1048576`
    """
    if "anyOf" in schema:
        options = [expectation_of(option) for option in schema["anyOf"] if option.get("type") != "null"]
        return " or ".join(options)
    if "enum" in schema:
        return f"one of {', '.join(map(str, schema['enum']))}"
    if "const" in schema:
        return str(schema["const"])
    words = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "object": "an object"}
    kind = schema.get("type", "object")
    if kind == "array":
        return f"a list of {schema.get('minItems', 0)} to {schema.get('maxItems', 'any number of')} values"
    if kind == "string":
        return f"text of {schema.get('minLength', 0)} to {schema.get('maxLength', 'any number of')} characters"
    return words[kind] + _range(schema)


def _step_into(schema: Schema, step: int | str) -> Schema | None:
    inside: Schema | None = schema.get("items") if isinstance(step, int) else schema.get("properties", {}).get(step)
    return inside


def _follow(root: Schema, schema: Schema) -> Schema:
    reference: str = schema.get("$ref", "")
    return root["$defs"][reference.rpartition("/")[2]] if reference else schema


def _range(schema: Schema) -> str:
    words = (("minimum", "from"), ("exclusiveMinimum", "above"), ("maximum", "to"), ("exclusiveMaximum", "to below"))
    said = "".join(f" {word} {_plain(schema[key])}" for key, word in words if key in schema)
    return said.replace("above 0 to below", "above 0 and below")


def _plain(bound: float) -> str:
    return str(int(bound)) if abs(bound) < MOST_DIGITS and bound == int(bound) else f"{bound:g}"
