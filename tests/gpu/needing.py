"""GPUs for tests: those that torch can use. TRAINCOST_REQUIRE_GPU=1 turns a skip into a failure."""

import os
from importlib.util import find_spec

import pytest


def need_gpus(count: int = 1) -> str:
    """The name of the GPU, or the test is skipped, saying what it lacks."""
    found = 0
    if find_spec("torch") is not None:
        import torch

        found = torch.cuda.device_count() if torch.cuda.is_available() and not torch.version.hip else 0
    if found < count:
        reason = f"{count} NVIDIA GPU{'s' if count > 1 else ''} needed that torch can use, {found} found"
        if os.environ.get("TRAINCOST_REQUIRE_GPU") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    import torch

    return str(torch.cuda.get_device_name(0))
