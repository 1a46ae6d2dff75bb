"""Which facts of a GPU do formulas ask: its row's, and what was measured of it where a calibration holds for it?"""

from service.catalogue.catalogue import Catalogue
from service.estimator.constants import calibrated
from service.estimator.question import Gpu


def calibrated_gpu(slug: str, catalogue: Catalogue) -> Gpu:
    """The facts of a GPU, with the calibration that holds for it.

    Args:
        slug: its slug
        catalogue: the facts

    Returns:
        the GPU that formulas ask
    """
    held, gpu = catalogue.calibrations.get(slug), catalogue.gpus[slug].gpu
    return gpu if held is None else calibrated(gpu, held.calibration)
