"""On a cluster each thing runs where its GPUs are, once more where a node dies, and leaves one result."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pyarrow.parquet as pq
import pytest

from service.catalogue import shipped_catalogue
from service.features.sweeps.rows import Rows, Sweep, columns_of, sweep_to_bytes
from service.features.sweeps.schemas import read_sweep
from service.features.sweeps.sweeps import Shard, shards_of
from service.worker.command import ROWS_FILE, SHARD_PROCESS, SWEEP_FILE
from service.worker.probing import CannotRun
from service.worker.ray_nodes import KIND, Node, nodes_of, placement_of
from service.worker.runners import PREFIX, WORK, Running, Task
from tests.needing import need
from tests.waiting import wait_until
from tests.worker.clusters import A100, H100, Cluster, cluster
from tests.worker.processes import is_alive

MODULE = "tests.worker.placed"
MOST_SECONDS = 60.0


def node(name: str, kind: str, gpus: int, cpus: int = 8) -> Node:
    return Node(id=name, cpus=cpus, gpus=gpus, kind=kind, labels={})


NODES = (node("a", H100, 8), node("b", H100, 8), node("c", A100, 4), node("d", "", 0, 2))


@pytest.mark.parametrize(
    ("kind", "ranks", "bundles", "strategy"),
    [
        (H100, 8, [8], "STRICT_PACK"),
        (H100, 3, [3], "STRICT_PACK"),
        (H100, 12, [8, 4], "STRICT_SPREAD"),
        (A100, 4, [4], "STRICT_PACK"),
    ],
)
def test_ranks_are_together_where_one_node_has_enough(kind: str, ranks: int, bundles: list[int], strategy: str) -> None:
    placing = placement_of(NODES, kind, ranks)
    assert ([bundle["GPU"] for bundle in placing.bundles], placing.strategy) == (bundles, strategy)
    assert all(bundle[KIND + kind] > 0 for bundle in placing.bundles)
    if len(bundles) > 1:
        assert [rank for own in placing.ranks for rank in own] == list(range(ranks))
        assert [len(own) for own in placing.ranks] == bundles


def test_what_a_cluster_has_not_is_said_with_what_it_has() -> None:
    with pytest.raises(CannotRun, match="5 GPUs of kind NVIDIA A100-SXM4-80GB are needed, and the cluster has 4 now"):
        placement_of(NODES, A100, 5)
    assert placement_of(NODES, None, 4).bundles == ({"CPU": 4},)
    with pytest.raises(CannotRun, match="no node of the cluster has a processor"):
        placement_of([], None, 1)


def test_dead_nodes_and_rays_own_labels_do_not_count() -> None:
    told = {"NodeID": "a", "Alive": True, "Resources": {"CPU": 4.0, "GPU": 2.0, f"{KIND}{H100}": 1.0}}
    labels = {"ray.io/node-id": "a", "rack": "7"}
    assert nodes_of([{**told, "Labels": labels}, {**told, "Alive": False}]) == (
        Node(id="a", cpus=4, gpus=2, kind=H100, labels={"rack": "7"}),
    )


@dataclass(frozen=True)
class Cloud:
    """A cluster, its nodes with GPUs, and the runner on it."""

    cluster: Cluster
    nodes: list[Any]
    runner: Any
    able: dict[str, Any]


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    need("ray")
    from service.worker.ray_runner import RayRunner

    with cluster() as made:
        nodes = made.add([(H100, 4, 1), (H100, 4, 1), (A100, 2, 1)])
        runner = RayRunner(made.address)
        yield Cloud(made, nodes, runner, runner.capabilities())
        runner.close()


def until_ended(running: Running, most_seconds: float = MOST_SECONDS) -> dict[str, Any]:
    ends = time.monotonic() + most_seconds
    while (record := running.poll()) is None:
        assert time.monotonic() < ends, running.progress()
        time.sleep(0.05)
    return record


def noted(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def until_noted(file: Path, count: int) -> list[dict[str, Any]]:
    wait_until(lambda: len(noted(file)) >= count)
    return noted(file)


def start(cloud: Cloud, folder: Path, *, device: str | None, seconds: float = 0.0, ranks: int = 1) -> Running:
    folder.mkdir()
    task = {"probe": "placed", "notes": str(folder.with_suffix(".notes")), "seconds": seconds, "ranks": ranks}
    running: Running = cloud.runner.start(Task(task=task, folder=folder, module=MODULE, device=device))
    return running


def kinds() -> dict[str, str]:
    import ray

    return {node.id: node.kind for node in nodes_of(ray.nodes())}


def test_a_cluster_can_do_what_its_nodes_can_do_together(cloud: Cloud) -> None:
    from service.worker.ray_runner import UPLOADING

    able = cloud.able
    assert {(one["name"], one["count"]) for one in able["devices"]} == {(H100, 8), (A100, 2)}
    assert (able["runner"], able["nodes"], able["cpu_threads"], able["sweeps"]) == ("ray", 4, 4, True)
    assert cloud.runner.slots() == 4 + UPLOADING


def test_each_runs_on_the_kind_that_it_is_for(cloud: Cloud, tmp_path: Path) -> None:
    started = {device: start(cloud, tmp_path / device[7:11], device=device) for device in (A100, H100)}
    for device, running in started.items():
        summary = until_ended(running)["summary"]
        running.kill()
        assert kinds()[summary["where"]["TRAINCOST_NODE"]] == device
        assert (tmp_path / device[7:11] / "found.txt").read_text(encoding="utf-8") == "found"


def test_ranks_of_several_nodes_find_each_other(cloud: Cloud, tmp_path: Path) -> None:
    running = start(cloud, tmp_path / "many", device=H100, ranks=6)
    assert until_ended(running)["summary"]["where"]["RANK"] == "0"
    running.kill()
    ranks = sorted(noted(tmp_path / "many.notes"), key=lambda one: int(one["RANK"]))
    assert [int(one["RANK"]) for one in ranks] == list(range(6))
    assert [int(one["LOCAL_RANK"]) for one in ranks] == [0, 1, 2, 3, 0, 1]
    assert len({one["TRAINCOST_NODE"] for one in ranks}) == 2
    assert len({(one["WORLD_SIZE"], one["MASTER_ADDR"], one["MASTER_PORT"]) for one in ranks}) == 1
    assert [len(one["CUDA_VISIBLE_DEVICES"].split(",")) for one in ranks] == [4, 4, 4, 4, 2, 2]


def test_too_many_gpus_are_not_waited_for(cloud: Cloud, tmp_path: Path) -> None:
    record = until_ended(start(cloud, tmp_path / "huge", device=A100, ranks=3))
    assert (record["status"], record["reason"]) == (
        "skipped", f"3 GPUs of kind {A100} are needed, and the cluster has 2 now",
    )  # fmt: skip


def test_what_is_killed_is_gone_from_its_node(cloud: Cloud, tmp_path: Path) -> None:
    running = start(cloud, tmp_path / "long", device=A100, seconds=300)
    (where,) = until_noted(tmp_path / "long.notes", 1)
    running.kill()
    assert running.poll() is None
    assert not is_alive(where["pid"])
    until_ended(start(cloud, tmp_path / "next", device=A100))


def test_where_a_node_dies_there_is_one_more_run_and_one_result(cloud: Cloud, tmp_path: Path) -> None:
    running = start(cloud, tmp_path / "lost", device=H100, seconds=3)
    (first,) = until_noted(tmp_path / "lost.notes", 1)
    place = next(place for place, one in enumerate(cloud.nodes) if one.node_id == first["TRAINCOST_NODE"])
    cloud.cluster.kill(cloud.nodes.pop(place))
    record = until_ended(running)
    assert record["status"] == "succeeded"
    second = record["summary"]["where"]
    assert [one["pid"] for one in noted(tmp_path / "lost.notes")] == [first["pid"], second["pid"]]
    assert kinds()[second["TRAINCOST_NODE"]] == H100
    assert second["TRAINCOST_NODE"] != first["TRAINCOST_NODE"]
    assert not is_alive(first["pid"])


BODY: dict[str, Any] = {
    "models": ["qwen3-0.6b"],
    "clusters": ["dgx-h100"],
    "layouts": [{"tensor": 1}, {"tensor": 3}],
    "recipes": [{"sequence_length": 4096, "global_batch": 64, "training_tokens": 1e10 + n} for n in range(20)],
    "prices": [{"usd_per_gpu_hour": 1 + place / 8} for place in range(50)],
    "columns": ["gpu_hours", "cost_usd"],
}


def shard_of(cloud: Cloud, sweep: Sweep, shard: Shard, folder: Path) -> Running:
    folder.mkdir()
    (folder / SWEEP_FILE).write_bytes(sweep_to_bytes(sweep))
    running: Running = cloud.runner.start(
        Task(task={"sweep": "swp", **shard._asdict()}, folder=folder, module=SHARD_PROCESS)
    )
    return running


def at_work() -> Iterator[Path]:
    """Files of pieces that tasks of Ray's own work out."""
    return Path(gettempdir()).glob(f"{PREFIX}*/{WORK}/{SWEEP_FILE}")


def test_a_piece_that_is_killed_frees_its_core_and_leaves_no_file(cloud: Cloud, tmp_path: Path) -> None:
    long = read_sweep({**BODY, "recipes": BODY["recipes"] * 100}, shipped_catalogue())
    left = set(at_work())
    running = [shard_of(cloud, long, Shard(place, 0, 200_000), tmp_path / f"{place}") for place in range(8)]
    wait_until(lambda: bool(set(at_work()) - left))
    for one in running:
        one.kill()
        assert one.poll() is None
    short = read_sweep(BODY, shipped_catalogue())
    assert until_ended(shard_of(cloud, short, Shard(0, 0, 10), tmp_path / "short"))["counts"]["rows"] == 10
    assert set(at_work()) <= left


def test_a_sweep_over_all_nodes_has_each_row_once_though_one_dies(cloud: Cloud, tmp_path: Path) -> None:
    sweep = read_sweep(BODY, shipped_catalogue())
    shards = shards_of(sweep.axes.rows, 100)
    running = [shard_of(cloud, sweep, shard, tmp_path / f"{shard.number:02}") for shard in shards]
    until_ended(running[0])
    cloud.cluster.kill(cloud.nodes.pop())
    records = [until_ended(one) for one in running]
    assert {record["status"] for record in records} == {"succeeded"}
    assert sum(record["counts"]["rows"] for record in records) == sweep.axes.rows == 2000
    names = [column.name for column in columns_of(sweep)]
    found = [row for folder in sorted(tmp_path.iterdir()) for row in pq.read_table(folder / ROWS_FILE).to_pylist()]
    assert found == [dict(zip(names, cells, strict=True)) for cells in Rows(sweep).of(0, 2000)]
