"""The ledger of a model under a plain setting: 16-bit, fused, without dropout."""

from service.estimator import Model
from service.estimator.model.build import build_ledger
from service.estimator.model.ledger import Ledger, Setting


def ledger_of(model: Model, tokens: int) -> Ledger:
    setting = Setting(
        tokens=tokens, element_bytes=2, keeps_scores=False, drops_out=False, fused_norm=True, fused_activation=True,
        repeats_key_values=False,
    )  # fmt: skip
    return build_ledger(model, setting)
