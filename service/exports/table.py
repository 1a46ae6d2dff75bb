"""Which tools can a question be written for? One row each."""

from collections.abc import Mapping

from service.exports.launchers.dstack import DSTACK
from service.exports.launchers.jobset import JOBSET
from service.exports.launchers.pytorchjob import PYTORCHJOB
from service.exports.launchers.ray_train import RAY_TRAIN
from service.exports.launchers.sbatch import SBATCH
from service.exports.launchers.skypilot import SKYPILOT
from service.exports.launchers.torchrun import TORCHRUN
from service.exports.launchers.trainjob import TRAINJOB
from service.exports.launchers.volcano import VOLCANO
from service.exports.target import Target
from service.exports.training.accelerate import ACCELERATE
from service.exports.training.deepspeed import DEEPSPEED
from service.exports.training.megatron_bridge import MEGATRON_BRIDGE
from service.exports.training.megatron_lm import MEGATRON_LM
from service.exports.training.nanotron import NANOTRON
from service.exports.training.torchtitan import TORCHTITAN

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
