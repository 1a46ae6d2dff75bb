"""Which model did a published run train? A preset of the catalogue, or a shape that its paper prints."""

import re
from collections.abc import Mapping
from typing import Any

from service.calibration.tables import MeasuredRow, NotExpressible
from service.catalogue import Catalogue
from service.estimator.model.parameters import count_parameters
from service.estimator.question import Model
from service.workflows.accuracy.frameworks import GPT_2

SAME_SIZE_FRACTION = 0.05
"""By how much the parameters of a row and of its model may differ: rows are rounded, and count embeddings or not."""

PRESETS: Mapping[str, str] = {
    r"LLaMA-1 (\S+)": r"llama-\1",
    r"Llama2-7B replica": "llama-2-7b",
    r"DeepSeek-V3": "deepseek-v3",
    r"Amber": "llama-7b",
    r"OLMoE": "olmoe-1b-7b",
    r"phi-3.5-mini": "phi-3-mini",
    r"Megatron-Turing NLG 530B": "mt-nlg-530b",
    r"GPT-3 175B": "gpt3-175b",
    r"GPT 1T on A100": "megatron-gpt-1008b",
    r"GPT-2 \(1.5B": "gpt2-1.5b",
}
"""Presets of models that rows call by another name, by how the name begins; others are named as the catalogue does."""

SHAPES: Mapping[str, Mapping[str, Any]] = {
    "BloombergGPT 50B": {
        **GPT_2, "vocab_size": 131072, "hidden_size": 7680, "num_hidden_layers": 70, "num_attention_heads": 40,
        "intermediate_size": 30720, "gated_mlp": False, "tie_word_embeddings": True,
    },
    "StarCoderBase 15.5B": {
        **GPT_2, "vocab_size": 49152, "hidden_size": 6144, "num_hidden_layers": 40, "num_attention_heads": 48,
        "num_key_value_heads": 1, "intermediate_size": 24576, "gated_mlp": False, "tie_word_embeddings": True,
        "position_embedding_rows": 8192,
    },
}  # fmt: skip
"""Shapes of models that the catalogue does not have.
Source: BloombergGPT, arXiv:2303.17564, section 3.1; StarCoder, arXiv:2305.06161, section 5; their parameters, 50.6 and
15.5 billion, are those that these give."""


def model_body(row: MeasuredRow, catalogue: Catalogue) -> Any:
    """The model of a row, as a question names it.

    Args:
        row: the row
        catalogue: the models

    Returns:
        a preset's name, or the fields of a model

    Raises:
        NotExpressible: nobody has told its shape, or the catalogue's model of that name has another size
    """
    shape = SHAPES.get(row.text("model"))
    model = _preset(row, catalogue) if shape is None else Model(**shape)
    if model is None:
        raise NotExpressible("model: no shape of it is known")
    told, counted = row.number_of("n_params_b"), count_parameters(model).total
    if not told or abs(counted / (told * 1e9) - 1) > SAME_SIZE_FRACTION:
        raise NotExpressible("model: the catalogue's has another size")
    return _slug(row.text("model")) if shape is None else dict(shape)


def is_sparse(row: MeasuredRow, catalogue: Catalogue) -> bool:
    """Whether the model of a row is a mixture of experts.

    Args:
        row: the row
        catalogue: the models

    Returns:
        False for a shape of our own: both are dense
    """
    model = _preset(row, catalogue)
    return model is not None and model.num_experts > 0


def longest_sequence(row: MeasuredRow, catalogue: Catalogue) -> int | None:
    """The longest sequence that the model of a row was built for.

    Args:
        row: the row
        catalogue: the models

    Returns:
        its length; None where nobody tells it [token]
    """
    model = _preset(row, catalogue)
    return None if model is None else model.max_position_embeddings


def _preset(row: MeasuredRow, catalogue: Catalogue) -> Model | None:
    found = catalogue.models.get(_slug(row.text("model")))
    return None if found is None else found.model


def _slug(name: str) -> str:
    for pattern, slug in PRESETS.items():
        if found := re.match(pattern, name):
            return found.expand(slug).lower()
    return name.lower().replace(" ", "-")
