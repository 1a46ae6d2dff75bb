"""How a config object of transformers says what mixes tokens in a layer, as one letter."""

from service.estimator.model.build import MIXERS
from service.estimator.question import LayerType


def letter_of(name: LayerType) -> str:
    """The first letter of its name there: every layer that carries a state is linear, or hybrid if it also attends."""
    mixer = MIXERS[name]
    if mixer.carries_state:
        return "h" if mixer.attends else "l"
    return name[0]
