"""Schemas of share links: for how long they are wanted, what they are, and which there are."""

from pydantic import TypeAdapter

from service.answers.shares import ListedShare, Share, ShareLinks, ShareList
from service.api.json_schema import Schema, object_schema, ref, untitled
from service.workflows.nouns import schema_of
from service.workflows.share_links import WantedShare


def share_schemas() -> dict[str, Schema]:
    """The schemas that the sharing of scenarios refers to.

    Returns:
        JSON schemas by component name
    """
    wanted = {
        name: {key: value for key, value in untitled(schema).items() if key != "default"}
        for name, schema in schema_of(WantedShare)["properties"].items()
    }
    links = _properties(ShareLinks)
    shared = {**_properties(Share), "links": ref("ShareLinks")}
    listed, one = _properties(ShareList), _properties(ListedShare)
    listed["items"] = {**listed["items"], "items": ref("ListedShare")}
    return {
        "ListedShare": object_schema("Links that were made of a scenario.", list(one), one),
        "ShareList": object_schema("The links of a scenario.", list(listed), listed),
        "ShareRequest": object_schema("For how long a scenario is to be shared.", [], wanted),
        "Share": object_schema("A scenario that is shared.", list(shared), shared),
        "ShareLinks": object_schema("Links that show a scenario to whoever has them.", list(links), links),
    }


def _properties(kind: type) -> Schema:
    properties: Schema = TypeAdapter(kind).json_schema(mode="serialization")["properties"]
    return {name: untitled(schema) for name, schema in properties.items()}
