"""How does a model come to a device: which numbers are its weights, and how many?"""

import torch

from service.worker.models.decoder import Decoder, Running
from service.worker.models.fields import ModelFields

WEIGHTS = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp16-mixed": torch.float32,
    "bf16-mixed": torch.float32,
}
"""Format of the weights under each precision recipe that torch runs by itself."""


def build(model: ModelFields, running: Running, precision: str, device: str) -> Decoder:
    """A model on a device, its weights random.

    Args:
        model: its fields
        running: how its operations are carried out
        precision: a name of WEIGHTS
        device: the device; `meta` holds no numbers

    Returns:
        the model, in training
    """
    usual = torch.get_default_dtype()
    torch.set_default_dtype(WEIGHTS[precision])
    try:
        with torch.device(device):
            decoder = Decoder(model, running)
            decoder.train()
            return decoder
    finally:
        torch.set_default_dtype(usual)
