"""At which reduced depths is a model measured, so that its full depth follows? One period of its layers apart."""

from service.estimator.build import layer_shapes
from service.estimator.model import Model


def depths_of(model: Model) -> tuple[int, int]:
    """Two depths that differ by one period of the model's kinds of layers, the leading ones of their own kind included.

    Args:
        model: the model

    Returns:
        the smaller and the larger depth [1]; the same twice for a model that never repeats, or has one layer

    >>> from service.estimator.samples import LLAMA_3_8B
    >>> depths_of(LLAMA_3_8B)
    (1, 2)
    """
    shapes = layer_shapes(model)
    layers = len(shapes)
    found = [
        (lead + 2 * period, lead + period)
        for period in range(1, layers // 2 + 1)
        for lead in range(layers - 2 * period + 1)
        if all(shapes[place] == shapes[place + period] for place in range(lead, layers - period))
    ]
    if not found:
        return layers, layers
    larger, smaller = min(found)
    return smaller, larger
