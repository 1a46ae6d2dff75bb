"""A sweep of a million rows over a Ray cluster beside one process, nodes killed, and probes where their GPUs are."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from service.catalogue import shipped_catalogue
from service.client import Client
from service.features.sweeps.schemas import read_sweep
from service.features.sweeps.shards import run_locally
from service.features.sweeps.store import read_shards
from service.store.database import prepare_database
from service.worker.ray_runner import RayRunner
from tests.house.source import ROOT
from tests.live import serving
from tests.worker.clusters import A100, H100, Cluster, cluster
from tests.worker.test_ray_runner import Cloud, kinds, noted, start, until_ended, until_noted

ROWS = 1_000_000
LEAST_TIMES = 1.5
"""Rows a second of the cluster over those of one process, in the same run."""
CORES = 2
ROUNDS = 3
"""Nodes that are killed under a probe."""
PLACED = 8
"""Probes that are placed by kind."""
MOST_SECONDS = 1800.0


def body(prices: int) -> dict[str, Any]:
    """A sweep of 4 x 5 x 50 x `prices` rows, a tenth of them refused."""
    return {
        "models": ["llama-3.1-8b", "qwen3-8b"],
        "clusters": [{"gpu": "h100-sxm5-80gb", "gpus": 64}, {"gpu": "a100-sxm4-80gb", "gpus": 64}],
        "layouts": [{"tensor": degree} for degree in (1, 2, 4, 8, 3)],
        "recipes": [
            {"sequence_length": 8192, "global_batch": 512, "training_tokens": 1e11 * (1 + step)} for step in range(50)
        ],
        "prices": [{"usd_per_gpu_hour": 1 + step / 500} for step in range(prices)],
    }


@contextmanager
def working(url: str, address: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A worker on the cluster."""
    command = [sys.executable, "-m", "service", "worker", "--url", url, "--runner", "ray", "--ray-address", address]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRAINCOST_LOG_LEVEL": "warning"}
    worker = subprocess.Popen(command, env=environment, cwd=ROOT)
    try:
        yield worker
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(60)


def until(client: Client, sweep_id: str, rows: int) -> Any:
    """The sweep once so many rows are kept, or it has ended."""
    ends = time.monotonic() + MOST_SECONDS
    while (sweep := client.sweeps.read(sweep_id)).rows.kept < rows and sweep.status in {"queued", "running"}:
        if time.monotonic() > ends:
            raise SystemExit(f"the sweep is not done: {sweep}")
        time.sleep(0.25)
    return sweep


def table(client: Client, sweep_id: str, folder: Path) -> pa.Table:
    """The rows that the service has."""
    client.sweeps.save(sweep_id, folder / "rows.parquet")
    return pq.read_table(folder / "rows.parquet")


def each_once(found: pa.Table, rows: int) -> bool:
    """Whether every row is there once, in order."""
    return bool(found.column("row").combine_chunks().equals(pa.array(range(rows), pa.int64())))


def timed(client: Client, folder: Path) -> bool:
    """The cluster beside one process, which work the same rows out."""
    sweep = read_sweep(body(1000), shipped_catalogue())
    began = time.perf_counter()
    counts = run_locally(sweep, folder / "alone.parquet", 1, lambda _: None)
    alone = time.perf_counter() - began
    began = time.perf_counter()
    asked = client.sweeps.create(body(1000))
    done = until(client, asked.id, ROWS)
    together = time.perf_counter() - began
    found = table(client, asked.id, folder)
    is_same = found.equals(pq.read_table(folder / "alone.parquet"))
    print(
        f"{counts.rows:,} rows ({counts.refused:,} refused): one process {ROWS / alone:,.0f} rows/s, cluster of "
        f"{CORES} cores {ROWS / together:,.0f} rows/s, {alone / together:.2f} times; bar {LEAST_TIMES}"
    )
    print(f"{done.status}; every row once: {each_once(found, ROWS)}; the same rows as one process: {is_same}")
    return alone / together >= LEAST_TIMES and done.status == "succeeded" and each_once(found, ROWS) and is_same


def killed(client: Client, made: Cluster, nodes: list[Any], folder: Path) -> bool:
    """A node dies half way through a million rows."""
    asked = client.sweeps.create(body(1000))
    until(client, asked.id, ROWS // 2)
    made.kill(nodes.pop())
    done = until(client, asked.id, ROWS)
    found = table(client, asked.id, folder)
    print(f"a node killed half way: {done.status}; every row once: {each_once(found, ROWS)}")
    return done.status == "succeeded" and each_once(found, ROWS)


def resumed(client: Client, url: str, folder: Path) -> bool:
    """A sweep is cancelled and resumed: pieces that were done stay as they were."""
    rows = 400_000
    asked = client.sweeps.create(body(400))
    until(client, asked.id, rows // 3)
    client.sweeps.cancel(asked.id)
    stopped = until(client, asked.id, rows)
    engine = prepare_database(url, shipped_catalogue())
    before = {one.id: one.finished_at for one in read_shards(engine, asked.id) if one.status == "succeeded"}
    client.sweeps.resume(asked.id)
    done = until(client, asked.id, rows)
    after = {one.id: one.finished_at for one in read_shards(engine, asked.id)}
    engine.dispose()
    is_kept = all(after[job] == moment for job, moment in before.items())
    is_whole = each_once(table(client, asked.id, folder), rows)
    print(
        f"cancelled with {len(before)} of {len(after)} pieces done ({stopped.status}), resumed: {done.status}; pieces "
        f"done before are as they were: {is_kept}; every row once: {is_whole}"
    )
    return (
        stopped.status == "cancelled"
        and done.status == "succeeded"
        and 0 < len(before) < len(after)
        and is_kept
        and is_whole
    )


def placed(cloud: Cloud, folder: Path) -> bool:
    """Probes run where their GPUs are; one whose node dies runs once more and gives one record."""
    right = 0
    for number in range(PLACED):
        device = (H100, A100)[number % 2]
        running = start(cloud, folder / f"placed-{number}", device=device)
        right += kinds()[until_ended(running)["summary"]["where"]["TRAINCOST_NODE"]] == device
        running.kill()
    print(f"probes on the right kind of GPU: {right} of {PLACED}")
    survived = 0
    for number in range(ROUNDS):
        notes = folder / f"lost-{number}.notes"
        running = start(cloud, folder / f"lost-{number}", device=H100, seconds=5)
        (first,) = until_noted(notes, 1)
        place = next(place for place, one in enumerate(cloud.nodes) if one.node_id == first["TRAINCOST_NODE"])
        cloud.cluster.kill(cloud.nodes.pop(place))
        record = until_ended(running, MOST_SECONDS)
        running.kill()
        survived += record["status"] == "succeeded" and len(noted(notes)) == 2
        cloud.nodes.extend(cloud.cluster.add([(H100, 4, 1)]))
    print(f"nodes killed under a probe, with one more run and one record: {survived} of {ROUNDS}")
    return right == PLACED and survived == ROUNDS


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="traincost-proof-") as name, cluster(cpus=0) as made:
        folder = Path(name)
        nodes = made.add([(H100, 4, 1), (H100, 4, 1), (A100, 2, 1), (A100, 2, 1)])
        runner = RayRunner(made.address)
        cloud = Cloud(made, nodes, runner, runner.capabilities())
        passed = [placed(cloud, folder)]
        with (
            serving(folder) as address,
            working(f"http://{address}", made.address),
            Client(f"http://{address}", timeout=600) as client,
        ):
            passed += [timed(client, folder), killed(client, made, cloud.nodes, folder)]
            passed.append(resumed(client, f"sqlite:///{folder}/traincost.db", folder))
        runner.close()
    return int(not all(passed))


if __name__ == "__main__":
    sys.exit(main())
