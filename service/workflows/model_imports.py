"""How does a pasted config.json become a row of the catalogue, and how many parameters does it describe?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.estimator.parameters import ParameterCounts, count_parameters
from service.store import History
from service.workflows.callers import Caller
from service.workflows.catalogue_lists import LISTINGS
from service.workflows.listed import Record
from service.workflows.model_bodies import columns_of_config, slug_of_config
from service.workflows.models import read_config
from service.workflows.own_rows import create_row


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedModel:
    """A model preset that was made of a config."""

    row: Record
    """The row, as the list of models shows it."""
    parameters: ParameterCounts
    """Its parameters, exact."""
    assumptions: tuple[str, ...]
    """What was assumed to read the config."""
    warnings: tuple[str, ...]
    """What of the config changes nothing here, or may belong to another model."""


def import_model(
    history: History, caller: Caller, config: Mapping[str, Any], slug: str | None, name: str | None
) -> ImportedModel:
    """Create a model preset from a Hugging Face config.

    Args:
        history: the catalogue over time
        caller: whose it is
        config: the config.json
        slug: what the model is to be called; as its repository, else by type and size, where absent
        name: its name in print; its slug where absent

    Returns:
        the row, with its parameter counts and what was assumed

    Raises:
        Refused: the config describes no model that can be estimated, or the slug is none
        Conflict: another model has the name
        Unreachable: the database does not answer
    """
    read = read_config(config, "")
    counts = count_parameters(read.noun)
    given = {"slug": slug or slug_of_config(config, read.noun), "name": name}
    row = create_row(history, LISTINGS["models"], caller, {**columns_of_config(read), **given})
    return ImportedModel(row=row, parameters=counts, assumptions=read.assumptions, warnings=read.warnings)
