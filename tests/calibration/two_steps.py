"""A trace of two steps on a device, written by hand."""

from typing import Any

HOST, MAIN, SIDE = 1, 7, 20


def event(category: str, name: str, start: float, end: float, **more: Any) -> dict[str, Any]:
    """One event of a trace; on stream `stream`, launched by `launch`, within the operation `outer`."""
    stream, launch, outer, copied = (more.get(key) for key in ("stream", "launch", "outer", "copied"))
    given = {"correlation": launch, "External id": outer, "bytes": copied, "device": 0}
    return {
        "ph": "X", "cat": category, "name": name, "ts": start, "dur": end - start,
        "pid": 0 if stream else HOST, "tid": stream or HOST,
        "args": {key: value for key, value in given.items() if value is not None},
    }  # fmt: skip


RUNTIME = "Runtime"
"""What torch-tb-profiler calls calls of CUDA; newer traces say cuda_runtime, which it does not read."""


SECOND = (130, 145, 160, 175)
"""When the kernels of the second step begin: as many as in the first, or TensorBoard's loader takes it for cut off."""


def two_steps(runtime: str = RUNTIME) -> list[dict[str, Any]]:
    """Two steps of 100 us on the host; the device is done with the first 20 us later.

    First step: copies 5, a product of 40 beside which 20 of an all-reduce of 50 run, the last 30 of it alone, then an
    update of 10. Second: a product of 60.
    """
    return [
        event("user_annotation", "ProfilerStep#2", 0, 100),
        event("user_annotation", "ProfilerStep#3", 100, 200),
        event("user_annotation", "enumerate(DataLoader)#_Single.__next__", 1, 4),
        event("cpu_op", "aten::mm", 5, 20, outer=1),
        event("cpu_op", "nccl:all_reduce", 21, 25, outer=2),
        event("cpu_op", "aten::_foreach_add_", 26, 40, outer=3),
        event("cpu_op", "aten::mm", 105, 120, outer=4),
        event(runtime, "cudaMemcpyAsync", 6, 8, launch=10, outer=1),
        event(runtime, "cudaLaunchKernel", 10, 12, launch=11, outer=1),
        event(runtime, "cudaLaunchKernel", 22, 24, launch=12, outer=2),
        event(runtime, "cudaLaunchKernel", 30, 32, launch=13, outer=3),
        event(runtime, "cudaStreamSynchronize", 80, 95, launch=14, outer=3),
        event(runtime, "cudaLaunchKernel", 110, 112, launch=15, outer=4),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 15, 20, stream=MAIN, launch=10, outer=1, copied=4096),
        event("kernel", "sm90_xmma_gemm_bf16", 20, 60, stream=MAIN, launch=11, outer=1),
        event("kernel", "ncclDevKernel_AllReduce_Sum_bf16", 40, 90, stream=SIDE, launch=12, outer=2),
        event("kernel", "void multi_tensor_apply_kernel<FusedAdamMath>", 110, 120, stream=MAIN, launch=13, outer=3),
        *(event("kernel", "sm90_xmma_gemm_bf16", at, at + 15, stream=MAIN, launch=15, outer=4) for at in SECOND),
    ]
