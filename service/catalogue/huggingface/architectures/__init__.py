"""Types of Hugging Face configs, one row a `model_type`.

A row says under which keys the type has the fields of a Model (`keys`; a field of `reads` that is not there has
its own name), which fields the type's code fixes whatever the config says (`fixed`), what is read by a rule
(`builders`), which values cannot be expressed (`demands`: the only ones that can), and which keys of the
architecture change nothing in this type (`without_effect`). Read in the classes of transformers, see `defaults.json`.
"""

from collections.abc import Mapping

from service.catalogue.huggingface.architectures.dense import DENSE, PLAIN
from service.catalogue.huggingface.architectures.hybrids import HYBRIDS
from service.catalogue.huggingface.architectures.row import Architecture
from service.catalogue.huggingface.architectures.sparse import SPARSE

ARCHITECTURES: Mapping[str, Architecture] = {**DENSE, **PLAIN, **SPARSE, **HYBRIDS}

__all__ = ["ARCHITECTURES", "Architecture"]
