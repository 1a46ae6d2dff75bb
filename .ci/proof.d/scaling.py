"""Texts of every format that grow along one dimension of their structure, and what costs more than it weighs.

Each text is sent to a running service in sizes n and 8n, up to the longest that its operation takes. The time is that
for which the service and its children held a processor, so others on the machine do not count; the least of some
tries is taken. Memory is the sum of what they hold, sampled while an answer is awaited.
"""

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Thread
from urllib.parse import quote

import httpx

from service.api.limits.http_limits import LARGER_BODY_BYTES, MAXIMUM_BODY_BYTES
from tests.api.asking import ADMISSION_TOKEN, QUESTION
from tests.house.source import ROOT

TIMES = 8
"""How much longer the second text is."""
MOST_TIMES = 12.0
"""Most that it may take longer by."""
FLOOR_SECONDS = 0.005
"""Time below which ratios tell nothing."""
MOST_BYTES = 200e6
"""Most memory beside that of the idle service."""
LONGEST_FILE_BYTES = 256 * 1024
LONGEST_QUERY_BYTES = 60_000
LONGEST_MESSAGE_BYTES = 200_000
SAMPLE_SECONDS = 0.01
TRIES = 3
LONG_SECONDS = 0.05
"""Time from which a text is sent once: what else the service does then counts for little."""
JSON = {"content-type": "application/json"}
TEXT = {"content-type": "text/plain"}
CSV = {"content-type": "text/csv"}

Grown = Callable[[int], str]
"""A text of about so many bytes."""
Sent = tuple[str, str, bytes | None, dict[str, str]]
"""Method, path, body and headers."""
Asked = Callable[[str], Sent]


def repeated(part: str, before: str = "", after: str = "") -> Grown:
    """One part again and again."""
    return lambda size: before + part * max((size - len(before) - len(after)) // len(part.encode()), 1) + after


def numbered(part: str, before: str = "", after: str = "", joint: str = "") -> Grown:
    """One part again and again, each with a number of its own for #."""

    def grown(size: int) -> str:
        count = max((size - len(before) - len(after)) // len(f"{part}{joint}".replace("#", "000000")), 1)
        return before + joint.join(part.replace("#", f"{number:06}") for number in range(count)) + after

    return grown


def indented(size: int) -> str:
    """Mappings inside each other, one a line."""
    return "".join(" " * depth + "a:\n" for depth in range(int((2 * size) ** 0.5)))


MEGATRON = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --vocab-size 99 --seq-length 128 "

TOML: dict[str, Grown] = {
    "dots": repeated("a.", after="a = 1\n"),
    "dots within bounds": numbered("a.b.c.d.e.f.g.h.i.j.k.l.m.n.k# = 1\n"),
    "quoted dots": repeated('"a".', after="a = 1\n"),
    "depth": repeated("[", "a = "),
    "tables in tables": repeated("{a = ", "a = "),
    "headers": numbered("[t#]\n"),
    "arrays of tables": repeated("[[a]]\n"),
    "digits": repeated("1", "a = "),
    "digits of hexadecimals": repeated("1", "a = 0x"),
    "digits of a fraction": repeated("1", "a = 1."),
    "keys": numbered("k# = 1\n"),
    "repeated keys": repeated("a = 1\n"),
    "a long key": lambda size: "[" + "a" * (size // 2) + "]\n" + numbered("k# = 1\n")(size // 2),
    "a list": repeated("1,", "a = [", "]"),
    "a list of texts": repeated('"",', "a = [", "]"),
    "comments": repeated("#\n"),
    "a line": repeated("x", 'a = "', '"'),
    "escapes": repeated("\\n", 'a = "', '"'),
    "unclosed quotes": repeated('\\"""', 'a = """'),
    "line ends": repeated("\r\n"),
    "blanks behind": repeated(" ", "a = 1"),
}
YAML: dict[str, Grown] = {
    "keys": numbered("k#: 1\n"),
    "repeated keys": repeated("a: 1\n"),
    "depth": indented,
    "flow depth": repeated("[", "a: "),
    "flow mappings": repeated("{a: ", "a: "),
    "a flow list": repeated("1,", "a: [", "]"),
    "dashes": repeated("- ", "a: "),
    "question marks": repeated("? "),
    "a long key": lambda size: "? " + "a" * (size // 2) + "\n:\n" + numbered("  k#: 1\n")(size // 2),
    "aliases": numbered("k#: *x\n", "a: &x 1\n"),
    "anchors": numbered("k#: &x# 1\n"),
    "merge keys": repeated("<<: {a: 1}\n"),
    "tags": numbered("k#: !!int 1\n"),
    "directives": numbered("%TAG !a# !b\n", after="---\na: 1\n"),
    "documents": repeated("---\n"),
    "digits": repeated("1", "a: "),
    "a plain text": repeated("b ", "a: "),
    "a text of many lines": repeated("b\n  ", "a: "),
    "a block": repeated("\n", "a: |\n"),
    "escapes": repeated("\\n", 'a: "', '"'),
    "an unclosed quote": repeated("b ", 'a: "'),
    "comments": repeated("#\n", "a: 1\n"),
    "blanks behind": repeated(" ", "a: 1"),
}
RECIPE = "cfg = llama3_8b_pretrain_config()\n"
PYTHON: dict[str, Grown] = {
    "fields": numbered("cfg.model.a# = 1\n", RECIPE),
    "parts that are replaced": numbered("cfg.model.a# = 1; cfg.model = A(b=1)\n", RECIPE),
    "statements": repeated("a;", RECIPE, "\n"),
    "a sum": repeated("+1", f"{RECIPE}x = 1", "\n"),
    "a list": repeated("1,", f"{RECIPE}cfg.model.a = [", "]\n"),
    "lists of themselves": repeated("x = (x, x)\n", f"{RECIPE}x = 1\n"),
    "functions": numbered("def f#(cfg: ConfigContainer):\n    cfg.a.b = 1\n"),
    "conditions": repeated("if a:\n    cfg.model.a = 1\n", RECIPE),
    "arguments": numbered("a#=1,", "cfg = llama3_8b_pretrain_config(", ")\n"),
    "comments": repeated("#\n", after=RECIPE),
    "blanks behind": repeated(" ", RECIPE),
    "a text": repeated("x", f"{RECIPE}cfg.model.a = '", "'\n"),
    "an unclosed text": repeated("x ", f'{RECIPE}x = """'),
    "signs": repeated("-", f"{RECIPE}x = ", "1\n"),
}
JSON_TEXTS: dict[str, Grown] = {
    "keys": numbered('"k#":1', "{", "}", ","),
    "repeated keys": repeated('"a":1,', "{", '"b":1}'),
    "depth": repeated('{"a":'),
    "depth of lists": repeated("[", '{"a":'),
    "a list": repeated("1,", '{"a":[', "1]}"),
    "empty lists": repeated("[],", '{"a":[', "1]}"),
    "digits": repeated("1", '{"a":', "}"),
    "a text": repeated("x", '{"a":"', '"}'),
    "escapes": repeated("\\n", '{"a":"', '"}'),
    "letters beyond ASCII": repeated("é", '{"a":"', '"}'),
    "quotes": repeated('"', '{"a":'),
    "blanks": repeated(" ", "{", "}"),
    "blanks behind": repeated(" ", "{}"),
    "a long key": lambda size: '{"' + "a" * (size // 2) + '":' + numbered('"k#":1', "{", "}}", ",")(size // 2),
}
ARGUMENTS: dict[str, Grown] = {
    "words": repeated("b ", f"{MEGATRON}--a "),
    "options": numbered("--k# ", MEGATRON),
    "a word": repeated("b", f"{MEGATRON}--a "),
    "digits": repeated("1", f"{MEGATRON}--train-iters "),
    "quotes": repeated("''", f"{MEGATRON}--a "),
    "an unclosed quote": repeated("b ", f"{MEGATRON}--a '"),
    "backslashes": repeated("\\a", f"{MEGATRON}--a "),
    "lines": repeated("\\\n", MEGATRON),
    "comments": repeated("\n#", MEGATRON),
    "blanks behind": repeated(" ", MEGATRON),
    "variables": repeated("$A ", f"{MEGATRON}--a "),
    "a layout": repeated("t*1", f"{MEGATRON}--pipeline-model-parallel-layout "),
    "a list that no field takes": repeated("b ", f"{MEGATRON}--recompute-granularity selective --recompute-modules "),
}
SCRIPTS: dict[str, Grown] = {
    "here-documents": numbered("cat > f# <<E#\nx\nE#\n"),
    "unclosed here-documents": repeated("cat > f <<X\n"),
    "signs of here-documents": repeated("<<"),
    "redirections": repeated("cat>", after=" <<X\n"),
    "commands": repeated("run_train.py "),
    "commands of accelerate": repeated("accelerate launch "),
    "blanks in a command": repeated(" ", "accelerate"),
    "lines": repeated("\n"),
    "comments": repeated("#\n"),
    "line separators": repeated("\u2028"),
    "arguments": numbered("--k# ", f"python pretrain_gpt.py {MEGATRON}"),
    "TOML inside": lambda size: (
        "cat > a.toml <<X\n" + TOML["dots"](size - 80) + "X\ntorchrun train.py --job.config_file a.toml\n"
    ),
    "YAML inside": lambda size: (
        "cat > a.yaml <<X\n" + YAML["a flow list"](size - 80) + "\nX\nrun_train.py --config-file a.yaml\n"
    ),
}
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB "
    "of which 1.25 GiB is free. "
)
MESSAGES: dict[str, Grown] = {
    "repeats": repeated(OOM),
    "digits": repeated("1", "CUDA out of memory. Tried to allocate "),
    "lines": repeated("\n", OOM),
    "blanks": repeated(" ", OOM, "."),
    "rows of a summary": repeated("| Allocated memory | 1 B | 2 B | 3 B |\n", "CUDA memory summary, device ID 0\n"),
    "ranks": repeated("[rank0]: ", after=OOM),
    "other processes": repeated("Process 1 has 1.00 GiB memory in use. ", OOM),
    "escapes": repeated("\x1b[0m", OOM),
}
HEAD = "provider,gpu,region,price_model,usd_per_gpu_hour"
PRICES: dict[str, Grown] = {
    "rows": numbered("mine#,h100,all,on-demand,2\n", f"{HEAD}\n"),
    "wrong rows": repeated("a,b,c,d,e\n", f"{HEAD}\n"),
    "empty rows": repeated("\n", f"{HEAD}\n"),
    "ragged rows": repeated("a\n", f"{HEAD}\n"),
    "columns": numbered("c#", joint=","),
    "repeated columns": repeated("provider,"),
    "cells": repeated(",", f"{HEAD}\na"),
    "a cell": repeated("a", f"{HEAD}\n"),
    "quotes": repeated('""', f'{HEAD}\n"', '"\n'),
    "an unclosed quote": repeated("a\n", f'{HEAD}\n"'),
    "digits": repeated("1", f"{HEAD}\nmine,h100,all,on-demand,", "\n"),
}
GEMM_HEAD = "device,dtype,rows,columns,inner,seconds"
GEMM: dict[str, Grown] = {
    "rows": numbered("H100,bf16,1#,4096,4096,0.001\n", f"{GEMM_HEAD}\n"),
    "the same row": repeated("H100,bf16,4096,4096,4096,0.001\n", f"{GEMM_HEAD}\n"),
    "devices": numbered("H#,bf16,4096,4096,4096,0.001\n", f"{GEMM_HEAD}\n"),
    "columns": repeated("device,"),
    "a cell": repeated("a", f"{GEMM_HEAD}\n"),
    "digits": repeated("9", f"{GEMM_HEAD}\nH100,bf16,", ",1,1,1\n"),
    "empty rows": repeated("\n", f"{GEMM_HEAD}\n"),
}
NCCL_HEAD = (
    "#  Rank  0 Group  0 Pid 1 on h device  0 [0x0f] NVIDIA H100\n#  Rank  1 Group  0 Pid 2 on h device  1 [0x1f] "
    "NVIDIA H100\n#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)\n"
)
NCCL: dict[str, Grown] = {
    "rows": numbered("  1#  262144  float  sum  -1  28.00  37.45  37.45  0\n", NCCL_HEAD),
    "ranks": numbered("# Rank  1# Group  0 Pid 1 on h device  0 [0x0f] NVIDIA H100\n", NCCL_HEAD),
    "blanks in a line": repeated(" ", "# Rank 0 Group 0 Pid 1 on h device 0 [0x0f] A", "B\n"),
    "digits": repeated("1", NCCL_HEAD, " 2 float sum -1 28.00 37.45 37.45 0\n"),
    "columns": repeated("time ", "# size type algbw busbw ", "\n#(us)\n1 2 3 4 5\n"),
    "lines": repeated("\n", NCCL_HEAD),
}
SNAPSHOT = '{"segments":['
SNAPSHOTS: dict[str, Grown] = {
    "segments": repeated('{"device":0,"total_size":2,"allocated_size":1},', SNAPSHOT, '{}],"device_traces":[]}'),
    "events": repeated('{"action":"alloc","size":1},', '{"segments":[],"device_traces":[[', "{}]]}"),
    "devices": lambda size: f'{SNAPSHOT}{"{}," * (size // 6)}{{}}],"device_traces":[{"[]," * (size // 6)}[]]}}',
    "digits": repeated("1", f'{SNAPSHOT}{{"total_size":', '}],"device_traces":[]}'),
    "depth": repeated("[", SNAPSHOT),
}
SACCT_HEAD = "JobID|State|ElapsedRaw|AllocTRES|Start|Comment\n"
SACCT: dict[str, Grown] = {
    "rows": numbered(
        "4#|COMPLETED|86400|gres/gpu=8|2026-11-20T08:00:00|est_0123456789abcdef0123456789abcdef\n", SACCT_HEAD
    ),
    "attempts": repeated(
        "4|COMPLETED|9|gres/gpu=8|2026-11-20T08:00:00|est_0123456789abcdef0123456789abcdef\n", SACCT_HEAD
    ),
    "wrong rows": repeated("x\n", SACCT_HEAD),
    "columns": numbered("c#", joint="|"),
    "repeated columns": repeated("JobID|"),
    "resources": repeated("gres/gpu=1,", f"{SACCT_HEAD}4|COMPLETED|9|", "|2026-11-20T08:00:00|x\n"),
    "a comment": repeated("est_", f"{SACCT_HEAD}4|COMPLETED|9|gres/gpu=8|2026-11-20T08:00:00|"),
    "line separators": repeated("\u2028", SACCT_HEAD),
}
ACCOUNTS: dict[str, Grown] = {
    "jobs": repeated('{"job_id":1,"state":{"current":["COMPLETED"]},"time":{"elapsed":1,"start":1}},',
        '{"meta":{"plugin":{"data_parser":"data_parser/v0.0.41"}},"jobs":[', "{}]}"),
    "wrong jobs": repeated("1,", '{"meta":{"plugin":{"data_parser":"data_parser/v0.0.41"}},"jobs":[', "1]}"),
    **JSON_TEXTS,
}  # fmt: skip


def within(name: str, value: str = "@") -> Callable[[str], bytes]:
    """A question with one more field, whose JSON text is grown."""
    text = json.dumps({**QUESTION, name: value})
    return lambda grown: text.replace('"@"', grown).encode()


BODIES: dict[str, Callable[[str], bytes]] = {
    "as a whole": str.encode,
    "hf_config": lambda grown: json.dumps({**QUESTION, "model": {"hf_config": "@"}}).replace('"@"', grown).encode(),
    "recipe": within("recipe"),
    "an unknown field": within("unknown"),
}


@dataclass(frozen=True)
class Kind:
    """One format at one operation."""

    name: str
    texts: dict[str, Grown]
    asked: Asked
    most_bytes: int


def posted(path: str, headers: dict[str, str], body: Callable[[str], bytes] = str.encode) -> Asked:
    return lambda text: ("POST", path, body(text), headers)


def launched(kind: str) -> Callable[[str], bytes]:
    """A check of a launcher's words."""
    return lambda text: json.dumps(
        {"launch": {"format": kind, "content": text}, "cluster": QUESTION["cluster"]}, ensure_ascii=False
    ).encode()


def submitted(text: str) -> bytes:
    job = {"script": text, "tres_per_node": "gres/gpu:h100:8"}
    return json.dumps(job, ensure_ascii=False).encode()


def manifest(text: str) -> dict[str, object]:
    container = {"command": ["bash", "-c", text], "resources": {"limits": {"nvidia.com/gpu": 8}}}
    return {"kind": "Job", "spec": {"template": {"spec": {"containers": [container]}}}}


def reviewed(text: str) -> bytes:
    request = {"uid": "1", "operation": "CREATE", "object": manifest(text)}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(review, ensure_ascii=False).encode()


def annotated(text: str) -> bytes:
    job = manifest("python pretrain_gpt.py --bf16")
    return json.dumps({**job, "metadata": {"annotations": {"traincost/question": text}}}, ensure_ascii=False).encode()


def kinds() -> Iterator[Kind]:
    """Every format at every operation that reads it."""
    files = (
        ("torchtitan", TOML), ("nanotron", YAML), ("accelerate", YAML), ("deepspeed", JSON_TEXTS),
        ("megatron-lm", ARGUMENTS),
    )  # fmt: skip
    for name, texts in files:
        yield Kind(f"imports/{name}", texts, posted(f"/v1/imports/{name}", TEXT), LONGEST_FILE_BYTES)
        yield Kind(f"check {name}", texts, posted("/v1/check", JSON, launched(name)), LONGEST_FILE_BYTES)
    yield Kind("imports/megatron-bridge", PYTHON, posted("/v1/imports/megatron-bridge", TEXT), LONGEST_FILE_BYTES)
    yield Kind("check script", SCRIPTS, posted("/v1/check", JSON, launched("script")), LONGEST_FILE_BYTES)
    yield Kind("slurm", SCRIPTS, posted("/v1/adapters/slurm/check", JSON, submitted), LONGEST_FILE_BYTES)
    webhook = f"/v1/adapters/kubernetes/admission/{ADMISSION_TOKEN}"
    yield Kind("kubernetes webhook", SCRIPTS, posted(webhook, JSON, reviewed), LONGEST_FILE_BYTES)
    yield Kind("kubernetes annotation", JSON_TEXTS, posted("/v1/adapters/kubernetes/check", JSON, annotated), 1 << 19)
    yield Kind("diagnose", MESSAGES, posted("/v1/diagnose", JSON, lambda text: json.dumps(
        {**QUESTION, "message": text}).encode()), LONGEST_MESSAGE_BYTES)  # fmt: skip
    yield Kind(
        "prices/import", PRICES, posted("/v1/prices/import?dry_run=true", CSV), LARGER_BODY_BYTES["/v1/prices/import"]
    )
    imports = "/v1/measurements/imports"
    yield Kind("gemm-csv", GEMM, posted(f"{imports}/gemm-csv", CSV), MAXIMUM_BODY_BYTES)
    yield Kind("nccl-tests", NCCL, posted(f"{imports}/nccl-tests", TEXT), MAXIMUM_BODY_BYTES)
    yield Kind("memory-snapshot", SNAPSHOTS, posted(f"{imports}/memory-snapshot?device=H100", JSON), MAXIMUM_BODY_BYTES)
    longest = LARGER_BODY_BYTES["/v1/reconciliations"]
    yield Kind("sacct table", SACCT, posted("/v1/reconciliations", TEXT), longest)
    yield Kind("sacct document", ACCOUNTS, posted("/v1/reconciliations", JSON), longest)
    for path in ("/v1/estimates", "/v1/check", "/v1/batch", "/v1/sweeps", "/v1/measurements"):
        for name, body in BODIES.items() if path == "/v1/estimates" else [*BODIES.items()][:1]:
            yield Kind(
                f"{path} {name}", JSON_TEXTS, posted(path, JSON, body), LARGER_BODY_BYTES.get(path, MAXIMUM_BODY_BYTES)
            )
    yield Kind("query", QUERIES, lambda text: ("GET", f"/v1/cell/gpu_hours?{text}", None, {}), LONGEST_QUERY_BYTES)


QUERIES: dict[str, Grown] = {
    "unknown names": numbered("k#=1&"),
    "repeated names": repeated("tensor=1&"),
    "a list": repeated("1;", "stage_layers="),
    "digits": repeated("1", "tensor="),
    "a long name": repeated("a"),
    "escapes": repeated(quote("é"), "model="),
}


class Tree:
    """A process and its children, as Linux sees them."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def pids(self) -> list[int]:
        """The process and those that it started, and so on."""
        children: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit():
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                    children.setdefault(parent, []).append(int(entry.name))
        found = [self.pid]
        for pid in found:
            found += children.get(pid, [])
        return found

    def nanoseconds(self) -> dict[int, int]:
        """Time for which each of them held a processor."""
        found: dict[int, int] = {}
        for pid in self.pids():
            with suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    with suppress(OSError):
                        found[pid] = found.get(pid, 0) + int((task / "schedstat").read_text().split()[0])
        return found

    def seconds_since(self, before: dict[int, int]) -> float:
        """Time for which they held one since, each that is still there."""
        return sum(now - before.get(pid, 0) for pid, now in self.nanoseconds().items()) / 1e9

    def bytes(self) -> int:
        """Memory that they hold, each page that several share counted by its share."""
        total = 0
        for pid in self.pids():
            with suppress(OSError):
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
        return total


@contextmanager
def started(folder: Path, source: Path) -> Iterator[tuple[str, int]]:
    """Address and number of a service that runs from a folder of sources."""
    environment = {
        **os.environ,
        "TRAINCOST_DATABASE_URL": f"sqlite:///{folder}/traincost.db",
        "PYTHONPATH": str(source),
    }
    command = [sys.executable, "-m", "service", "serve", "--port", "0", "--no-worker"]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        lines = (re.search(r"http://([\d.]+:\d+)", line) for line in server.stdout or ())
        found = next((match for match in lines if match), None)
        if found is None:
            sys.exit((folder / "log").read_text())
        yield found[1], server.pid
    finally:
        server.terminate()
        server.wait(timeout=30)


def warm(client: httpx.Client) -> None:
    """Have the service load what its first answers need, its computing processes too."""
    for kind in kinds():
        for size in (100, 40_000):
            sent = kind.asked(next(iter(kind.texts.values()))(min(size, kind.most_bytes)))
            client.request(sent[0], sent[1], content=sent[2], headers=sent[3])


class Peak:
    """Samples the memory of a process tree while a request is under way."""

    def __init__(self, tree: Tree) -> None:
        self.tree, self.largest, self.stop = tree, 0, Event()
        self.thread = Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        while not self.stop.is_set():
            self.largest = max(self.largest, self.tree.bytes())
            self.stop.wait(SAMPLE_SECONDS)

    def __enter__(self) -> "Peak":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join()
        self.largest = max(self.largest, self.tree.bytes())


@dataclass
class Cost:
    """What one text cost."""

    size: int
    status: int
    code: str
    cpu_seconds: float
    seconds: float
    largest: int


@dataclass
class Tally:
    """What was found so far."""

    rows: list[dict[str, object]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    slowest_seconds: float = 0.0
    largest_bytes: int = 0

    def note(self, cost: Cost) -> None:
        self.slowest_seconds = max(self.slowest_seconds, cost.cpu_seconds)
        self.largest_bytes = max(self.largest_bytes, cost.largest)


def cost_of(client: httpx.Client, tree: Tree, sent: Sent, tries: int) -> Cost:
    method, path, body, headers = sent
    best: Cost | None = None
    for _ in range(tries):
        before, begun = tree.nanoseconds(), time.perf_counter()
        with Peak(tree) as peak:
            try:
                answer = client.request(method, path, content=body, headers=headers)
                status, code = answer.status_code, code_of(answer)
            except httpx.HTTPError as error:
                status, code = 599, type(error).__name__
        cost = Cost(
            len(path) if body is None else len(body), status, code, max(tree.seconds_since(before), 0.0),
            time.perf_counter() - begun, peak.largest,
        )  # fmt: skip
        best = cost if best is None else least(best, cost)
        if cost.cpu_seconds > LONG_SECONDS:
            break
    return best or Cost(0, 599, "not tried", 0.0, 0.0, 0)


def least(one: Cost, other: Cost) -> Cost:
    """What the same text cost at least, and held at most."""
    cheaper = min(one, other, key=lambda cost: cost.cpu_seconds)
    return replace(cheaper, largest=max(one.largest, other.largest))


def ratio_of(costs: list[Cost]) -> float:
    """How much longer the longer text takes, over the most that it may."""
    most = MOST_TIMES * costs[1].size / TIMES / costs[0].size
    return costs[1].cpu_seconds / max(costs[0].cpu_seconds, FLOOR_SECONDS) / most


def code_of(answer: httpx.Response) -> str:
    if answer.status_code < 400:
        return "ok"
    try:
        document = answer.json()
    except ValueError:
        return "no problem document"
    errors = document.get("errors") or [{}]
    return str(errors[0].get("code") or document.get("code"))


def measured(client: httpx.Client, tree: Tree, tally: Tally, chosen: list[str], idle: int) -> None:
    for kind in kinds():
        if chosen and not any(word in kind.name for word in chosen):
            continue
        for dimension, grown in kind.texts.items():
            most = kind.most_bytes - 2_000
            sent = [kind.asked(grown(size)) for size in (most // TIMES, most)]
            costs = [cost_of(client, tree, one, TRIES) for one in sent]
            for _ in range(TRIES):
                if ratio_of(costs) <= 1:
                    break
                costs = [least(cost, cost_of(client, tree, one, 1)) for cost, one in zip(costs, sent, strict=True)]
            ratio = costs[1].cpu_seconds / max(costs[0].cpu_seconds, FLOOR_SECONDS)
            grew = max(cost.largest for cost in costs) - idle
            wrong = [
                *(f"{cost.status} {cost.code} at {cost.size} bytes" for cost in costs if cost.status >= 500),
                *([f"{ratio:.1f} times the time"] if ratio_of(costs) > 1 else []),
                *([f"{grew / 1e6:.0f} MB"] if grew > MOST_BYTES else []),
            ]
            for cost in costs:
                tally.note(cost)
            tally.violations += [f"{kind.name}, {dimension}: {one}" for one in wrong]
            tally.rows.append({
                "format": kind.name, "dimension": dimension, "bytes": costs[1].size,
                "answers": " / ".join(dict.fromkeys(f"{cost.status} {cost.code}" for cost in costs)),
                "cpu_ms": round(costs[1].cpu_seconds * 1e3, 1), "ratio": round(ratio, 1),
                "wall_ms": round(costs[1].seconds * 1e3, 1), "MB": round(grew / 1e6, 1),
            })  # fmt: skip
            shown(tally.rows[-1], wrong)


def shown(row: dict[str, object], wrong: list[str]) -> None:
    print(
        f"{row['format']!s:34} {row['dimension']!s:28} {row['bytes']:>9} {row['answers']!s:44} {row['cpu_ms']:>8} ms "
        f"x{row['ratio']:<5} {row['MB']:>7} MB {'; '.join(wrong)}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, default=ROOT, help="folder of another version, to measure that")
    parser.add_argument("--only", nargs="*", default=[], help="formats whose name holds one of these words")
    parser.add_argument("--table", type=Path, help="file for the table as CSV")
    given = parser.parse_args()
    os.environ["TRAINCOST_ADMISSION_TOKEN"] = ADMISSION_TOKEN
    os.environ["TRAINCOST_REQUESTS_PER_MINUTE"] = "0"
    tally = Tally()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="traincost-scaling-")))
        address, pid = stack.enter_context(started(folder, given.source.resolve()))
        client = stack.enter_context(httpx.Client(base_url=f"http://{address}", timeout=120))
        tree = Tree(pid)
        warm(client)
        idle = tree.bytes()
        print(f"idle: {idle / 1e6:.0f} MB", flush=True)
        measured(client, tree, tally, given.only, idle)
    if given.table:
        with given.table.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(tally.rows[0]))
            writer.writeheader()
            writer.writerows(tally.rows)
    print(
        f"{len(tally.rows)} dimensions of {len({row['format'] for row in tally.rows})} formats and operations: "
        f"violations {len(tally.violations)}, largest time {tally.slowest_seconds:.2f} s, largest memory "
        f"{(tally.largest_bytes - idle) / 1e6:.0f} MB beside the idle service"
    )
    if tally.violations:
        sys.exit("\n".join(tally.violations))


if __name__ == "__main__":
    main()
