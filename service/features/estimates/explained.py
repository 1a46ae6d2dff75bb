"""Explanations of the numbers of an answer, down to the rows of the catalogue that it rests on."""

from collections.abc import Iterator
from dataclasses import replace

from service.answers.estimates import Source
from service.answers.names import WIRE_NAMES
from service.catalogue import Catalogue
from service.estimator.answer import Estimate, Explanation, Reference
from service.estimator.explain.explanations import explanations
from service.estimator.explain.references import page_of
from service.validation.questions import ParsedQuestion
from service.validation.reading import source_of

_REGION = "cluster.grid_kg_co2e_per_kwh"
_LISTS = {"model": "models", "gpu": "gpus", "region": "regions", "price": "prices"}
"""Lists in which a row is found by its name."""


def explained(parsed: ParsedQuestion, found: Estimate, catalogue: Catalogue) -> dict[str, Explanation]:
    """Every number of an answer explained, and every input of one, by its cell name."""
    rows = dict(_rows_of(parsed, catalogue))
    named = {_on_the_wire(one.path): one for one in explanations(parsed.question, found, rows)}
    return {path: one if one.path == path else replace(one, path=path) for path, one in named.items()}


def _on_the_wire(path: str) -> str:
    parent, _, name = path.rpartition(".")
    return f"{parent}.{WIRE_NAMES[name]}" if name in WIRE_NAMES else path


def _rows_of(parsed: ParsedQuestion, catalogue: Catalogue) -> Iterator[tuple[str, Reference]]:
    """Rows behind the parts and fields of a question."""
    question = parsed.question
    gpu, region = catalogue.gpus.get(question.gpu.slug), catalogue.regions.get(question.cluster.grid_region or "")
    model = next((row for row in catalogue.models.values() if row.model == question.model), None)
    if gpu is not None and gpu.gpu == question.gpu:
        yield "gpu", _row(source_of(gpu))
    if model is not None:
        yield "model", _row(source_of(model))
    if region is not None:
        yield _REGION, _row(source_of(region))
    for one in parsed.sources:
        if one.kind in ("price", "rate_card"):
            if one.name == question.gpu.slug:
                yield "price.purchase_usd", _row(replace(one, kind="gpu"))
            else:
                yield "price.usd_per_gpu_hour", _row(one)


def _row(source: Source) -> Reference:
    """A row of the catalogue, its source and date."""
    text = f"{source.kind.replace('_', ' ')} {source.name} of the catalogue, as of {source.as_of}: {source.source}"
    row = f"/v1/{_LISTS[source.kind]}/{source.name}" if source.kind in _LISTS else None
    return Reference(kind="catalogue", text=text, url=row or page_of(source.source))
