"""Which other tools can be asked? One row a method."""

from service.estimator.methods.accelerate import ACCELERATE
from service.estimator.methods.eleutherai_cookbook import COOKBOOK
from service.estimator.methods.megatron_theoretical import MEGATRON
from service.estimator.methods.nanotron_predict_memory import NANOTRON
from service.estimator.methods.tool import Tool
from service.estimator.methods.zero3_estimator import ZERO3
from service.estimator.names import ToolName

TOOLS: dict[ToolName, Tool] = {
    "nanotron-predict-memory": NANOTRON,
    "megatron-theoretical": MEGATRON,
    "accelerate": ACCELERATE,
    "zero3-estimator": ZERO3,
    "eleutherai-cookbook": COOKBOOK,
}
