"""The worked examples use the catalogue's own rows, so a corrected row corrects them too."""

from service.catalogue import shipped_catalogue
from service.estimator.samples import H100, LLAMA_3_8B


def test_sample_gpu_is_the_catalogues() -> None:
    assert shipped_catalogue().gpus["h100-sxm5-80gb"].gpu == H100


def test_sample_model_is_the_catalogues() -> None:
    assert shipped_catalogue().models["llama-3.1-8b"].model == LLAMA_3_8B
