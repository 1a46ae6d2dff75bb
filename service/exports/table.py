"""Which tools can a question be written for? One row each."""

from collections.abc import Mapping

from service.exports.target import Target
from service.exports.targets.accelerate import ACCELERATE
from service.exports.targets.deepspeed import DEEPSPEED
from service.exports.targets.dstack import DSTACK
from service.exports.targets.jobset import JOBSET
from service.exports.targets.megatron_bridge import MEGATRON_BRIDGE
from service.exports.targets.megatron_lm import MEGATRON_LM
from service.exports.targets.nanotron import NANOTRON
from service.exports.targets.pytorchjob import PYTORCHJOB
from service.exports.targets.ray_train import RAY_TRAIN
from service.exports.targets.sbatch import SBATCH
from service.exports.targets.skypilot import SKYPILOT
from service.exports.targets.torchrun import TORCHRUN
from service.exports.targets.torchtitan import TORCHTITAN
from service.exports.targets.trainjob import TRAINJOB
from service.exports.targets.volcano import VOLCANO

_ROWS = (
    MEGATRON_LM,
    MEGATRON_BRIDGE,
    TORCHTITAN,
    NANOTRON,
    DEEPSPEED,
    ACCELERATE,
    TORCHRUN,
    SBATCH,
    TRAINJOB,
    PYTORCHJOB,
    JOBSET,
    VOLCANO,
    SKYPILOT,
    DSTACK,
    RAY_TRAIN,
)

TARGETS: Mapping[str, Target] = {target.name: target for target in _ROWS}
"""Every target by its name: first what says how to train, then what starts it."""
