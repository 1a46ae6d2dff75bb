"""What do requests about measurements and calibrations look like? Examples that follow on each other."""

from service.api.json_schema import Schema

SHAPES = (
    (8192, 6144, 4096, 0.0007315),
    (8192, 4096, 4096, 0.0004694),
    (8192, 28672, 4096, 0.003276),
    (8192, 4096, 14336, 0.00161),
    (4096, 6144, 4096, 0.0003624),
    (2048, 4096, 14336, 0.0003997),
)
"""Rows, columns, inner numbers and seconds of products of one GPU that runs slower than others of its kind."""


def _product(rows: int, columns: int, inner: int, seconds: float) -> Schema:
    shape = {"rows": rows, "columns": columns, "inner": inner, "dtype": "bf16", "copies": 1}
    return {
        "operation": "forward",
        "shape": shape,
        "quantity": "seconds",
        "value": seconds,
        "low": round(seconds * 0.99, 9),
        "high": round(seconds * 1.02, 9),
        "repeats": 20,
    }


RECORDS: Schema = {
    "source": "gemm probe on node 7",
    "run": "node-7",
    "measured_at": "2026-11-23T08:00:00Z",
    "records": [
        {
            "probe": "gemm",
            "status": "succeeded",
            "seconds": 2.5,
            "environment": {
                "kind": "cuda",
                "device": "NVIDIA H100 80GB HBM3",
                "devices": 8,
                "memory_bytes": 85_520_809_984,
                "compute_capability": "9.0",
                "driver": "580.95",
                "runtime": "13.0",
                "torch": "2.9.1",
            },
            "measurements": [_product(*shape) for shape in SHAPES],
        }
    ],
}
"""What POST /v1/measurements takes: the record of a probe, as a worker writes it."""

_DEVICE = "#  Rank  {0} Group  0 Pid 1623025 on    host device  {0} [0x1b] NVIDIA H100 80GB HBM3\n"

NCCL_TESTS = f"""# nThread 1 nGpus 8 minBytes 268435456 maxBytes 2147483648 step: 2(factor) warmup iters: 5 iters: 20
# Using devices
{"".join(map(_DEVICE.format, range(8)))}#
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
   268435456      67108864     float     sum      -1   1119.8  239.71  419.49      0   1117.4  240.24  420.42      0
  1073741824     268435456     float     sum      -1   4027.3  266.61  466.57      0   4029.1  266.50  466.37      0
"""
"""What POST /v1/measurements/imports/nccl-tests takes."""

MEASUREMENT_ID = "msr_9bec5fed2aa72e8fd124217153ba1408"
"""Id of the first of RECORDS: what was measured decides it."""

DOUBTED: Schema = {"ids": [MEASUREMENT_ID], "reason": "the fan of this node was broken"}
"""What POST /v1/measurements/quarantine takes."""

RELEASED: Schema = {"ids": [MEASUREMENT_ID]}
"""What POST /v1/measurements/release takes."""

PROMOTION: Schema = {"scope": "everyone"}
CHOSEN: Schema = {"gpu": "h100-sxm5-80gb", "runs": ["node-7"], "probes": ["gemm"], "note": "node 7, November"}
"""What POST /v1/calibrations takes."""
