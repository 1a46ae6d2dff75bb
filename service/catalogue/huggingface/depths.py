"""Which depths of multi-token prediction does a config speak of that the model read from it has not?"""

from service.catalogue.huggingface.config import Config
from service.catalogue.huggingface.layer_patterns import Builder, Fields


def depths_left_out(count: str, *others: str) -> Builder:
    """Depths of a kind that no layer of the model describes: left out, as transformers leaves them out, and said.

    Args:
        count: where their number stands
        others: keys that say how a depth is made

    Returns:
        builder of no field
    """

    def build(config: Config) -> Fields:
        config.understood.update(others)
        if config.whole_or_none(count):
            config.notes.append(f"multi-token-prediction depths ({count}) are left out")
        return {}

    return build
