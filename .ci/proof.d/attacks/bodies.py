"""Texts and bodies that cost more than they weigh, through every door that reads them."""

import gzip
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from attacks.record import Attempt, Report, expect
from attacks.service import ADMISSION_TOKEN, QUESTION, Beside, Caller, HttpError, Service, Target, serving

FAMILY, LINE = "bodies", 1
MOST_SECONDS = 2.0
"""Most processor time of a request, for each megabyte where it has more than one."""
MOST_GROWTH_BYTES = 200 << 20
MOST_BESIDE_SECONDS = 1.0
"""Longest wait of a check beside an attack; the strict bar of 20 ms has a proof of its own."""
REPEATS = 2
PATIENCE_SECONDS = 20.0
"""Longest wait for an answer; then the service is started anew, and the next attack finds it fresh."""

TEXT, JSON, CSV = "text/plain", "application/json", "text/csv"
FILE_BYTES = 250_000
"""Length of a hostile file: just below the longest that is read."""
CLUSTER = {"gpu": "h100", "gpus": 8}


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """One hostile request."""

    name: str
    path: str
    content: bytes
    media: str = JSON
    keyless: bool = False
    query: Mapping[str, str] = field(default_factory=dict)


def repeated(unit: str, size: int = FILE_BYTES) -> str:
    """A text of about a size that repeats a unit."""
    return unit * (size // len(unit.encode()))


def numbered(form: str, size: int = FILE_BYTES) -> str:
    """Lines of about a size, each with a number of its own in the place of {n}."""
    lines: list[str] = []
    length = 0
    while length < size:
        lines.append(form.replace("{n}", str(len(lines))))
        length += len(lines[-1]) + 1
    return "\n".join(lines)


def toml_texts() -> Iterator[tuple[str, str]]:
    """Files of torchtitan; the first three are known to have stopped a version."""
    yield "key of 131,000 dots", "a" + ".a" * 131_000 + "=1"
    yield "key of 20,000 dots", "a" + ".a" * 20_000 + "=1"
    yield "4,301 digits", "a=" + "9" * 4301
    yield "dots between spaces", "a" + " . a" * 60_000 + "=1"
    yield "quoted dots", '""' + '.""' * 80_000 + "=1"
    yield "header of 60,000 dots", "[a" + ".a" * 60_000 + "]"
    yield "nested arrays", "a=" + "[" * 120_000 + "]" * 120_000
    yield "nested arrays without end", "a=" + "[" * 250_000
    yield "nested inline tables", "a=" + "{a=" * 60_000 + "1" + "}" * 60_000
    yield "arrays of tables", repeated("[[a]]\n")
    yield "arrays of tables in arrays of tables", numbered("[[a]]\n[[a.b]]\n[a.b.c{n}]")
    yield "many lines of many dots", numbered("b{n}" + ".a" * 120 + "=1")
    yield "one table of long dotted keys", numbered("a" + ".a" * 400 + ".b{n}=1")
    yield "dotted inline table", "a={" + ",".join(f"b.c.d.e{n}=1" for n in range(18_000)) + "}"
    yield "hexadecimal of 240,000 digits", "a=0x" + "f" * 240_000
    yield "binary of 240,000 digits", "a=0b" + "1" * 240_000
    yield "4,300 digits with underscores", "a=" + "1_" * 4_300 + "1"
    yield "exponent of 100,000 digits", "a=1e" + "9" * 100_000
    yield "unclosed multi-line text", 'a="""' + repeated('""\\"', 240_000)
    yield "escapes", 'a="' + repeated("\\U0001F600", 240_000) + '"'
    yield "comments", repeated("#\n")
    yield "dates", numbered("a{n}=1979-05-27T07:32:00.999999999999999999999999-00:00")
    yield "spaces", "a" + " " * 249_000 + "=1"
    yield "unclosed key", '"' + "\\u0061" * 41_000
    yield "a mapping as a known setting", "[model]\nname=" + "{a=" * 15 + "1" + "}" * 15
    yield "degree of 4,300 digits", "[parallelism]\ntensor_parallel_degree=" + "9" * 4_300
    yield "infinite degree", "[parallelism]\ntensor_parallel_degree=inf\n[training]\nseq_len=nan\nlocal_batch_size=-0"


def yaml_texts() -> Iterator[tuple[str, str]]:
    """Files of nanotron and accelerate."""
    yield "nested lists", "a: " + "[" * 120_000 + "]" * 120_000
    yield "nested lists without end", "a: " + "[" * 250_000
    yield "nested mappings", "a: " + "{a: " * 60_000
    yield "compact nested lists", repeated("- ")
    yield "compact nested keys", repeated("? ")
    yield "indentation", "\n".join(" " * n + "a:" for n in range(680))
    yield (
        "billion laughs",
        "a0: &a0 [x,x]\n" + "\n".join(f"a{n}: &a{n} [*a{n - 1},*a{n - 1},*a{n - 1},*a{n - 1}]" for n in range(1, 200)),
    )
    yield "anchors", numbered("a{n}: &b{n} 1")
    yield "a list that holds itself", "a: &a [*a, *a]"
    yield "merge keys", "b: &b {c: 1}\n" + numbered("a{n}: {<<: *b}")
    yield "4,301 digits", "a: " + "9" * 4301
    yield "sexagesimal number", "a: 1" + ":59" * 80_000
    yield "tags", repeated("!!a ")
    yield "a Python object", "a: !!python/object/apply:time.sleep [5]"
    yield "documents", repeated("---\n")
    yield "directives", repeated("%A b\n")
    yield "long plain text", "a: " + "x " * 120_000
    yield "unclosed quotes", 'a: "' + repeated('\\"', 240_000)
    yield "simple keys in a flow", "a: {" + repeated("b, ", 240_000)
    yield "colons", repeated(":")
    yield "colons and spaces", repeated(": ")
    yield "dashes", repeated("-\n")
    yield "block text", "a: |\n" + repeated(" \n", 240_000)
    yield "block text with many indents", "a: >\n" + "\n".join(" " * (n % 300) + "x" for n in range(1_500))
    yield "many settings", numbered("a{n}: 1")
    yield "one mapping of long names", "a:\n" + numbered("  " + "b" * 500 + "{n}: 1")
    yield "commas", "a: [" + repeated(",", 200_000)
    yield "long key", "a" * 249_000 + ": 1"
    yield "degree of 18 digits", "parallelism:\n  dp: " + "9" * 18 + "\n  pp: " + "9" * 18 + "\n  tp: 1e308"


def json_texts() -> Iterator[tuple[str, str]]:
    """Files of DeepSpeed, and any other JSON."""
    yield "nested lists", "[" * 120_000 + "]" * 120_000
    yield "nested objects", '{"a":' * 45_000 + "1" + "}" * 45_000
    yield "an object of nested lists", '{"a":' + "[" * 120_000 + "]" * 120_000 + "}"
    yield "4,301 digits", '{"train_micro_batch_size_per_gpu":' + "9" * 4301 + "}"
    yield "4,300 digits", '{"train_micro_batch_size_per_gpu":' + "9" * 4300 + "}"
    yield "240,000 digits", '{"a":' + "9" * 240_000 + "}"
    yield "decimals of 240,000 digits", '{"a":0.' + "9" * 240_000 + "}"
    yield "exponent of 240,000 digits", '{"a":1e' + "9" * 240_000 + "}"
    yield "half a surrogate", '{"a":"\\ud800","\\udfff":1}'
    yield "keys", "{" + ",".join(f'"a{n}":1' for n in range(20_000)) + "}"
    yield "the same key", "{" + ",".join('"a":1' for _ in range(40_000)) + "}"
    yield "one list", '{"a":[' + repeated("1,", 240_000) + "1]}"
    yield "escapes", '{"a":"' + repeated("\\u0000", 240_000) + '"}'
    yield "NaN", '{"train_batch_size":NaN,"zero_optimization":{"stage":Infinity}}'
    yield "stage as a list of lists", '{"zero_optimization":{"stage":' + "[" * 14 + "]" * 14 + "}}"
    yield "white space", "{" + " " * 249_000 + "}"
    yield "unclosed text", '{"a":"' + "\\\\" * 120_000


def python_texts() -> Iterator[tuple[str, str]]:
    """Programs that fill in Megatron-Bridge's configuration."""
    for name, text in (
        ("signs", f"x = {'-' * 16_000}1"),
        ("attributes", f"cfg{'.a' * 8_000} = 1"),
        ("sums", f"x = 1{'+1' * 8_000}"),
        ("calls", f"x = f{'()' * 5_000}"),
        ("functions without names", f"x = {'lambda:' * 8_000}1"),
        ("brackets", f"x = {'(' * 240_000}"),
        ("branches", "if a: pass\n" + repeated("elif b: pass\n", 50_000)),
        ("squares", "x = 9\n" + repeated("x = x * x\n", 32_000)),
        ("lists of themselves", "x = (1,)\n" + repeated("x = (x, x)\n", 25_000) + "cfg.model.a = x"),
        ("objects of themselves", "x = A(a=1)\n" + repeated("x = A(a=x, b=x)\n", 21_000) + "cfg.model = x"),
        ("a function that calls itself", "def f(c):\n" + repeated("    f(c)\n", 2_000) + "f(cfg)"),
        ("parts that are replaced", numbered("cfg.model.a{n} = 1; cfg.model = A(b=1)")),
        ("fields", numbered("cfg.model.a{n} = 1")),
        ("expressions", repeated("a;", 16_000)),
        ("digits", f"cfg.model.a = {'9' * 4_000}"),
        ("endless text", 'x = """' + repeated("a ", 30_000)),
        ("texts with values", "x = " + repeated("f'{x}'", 16_000)),
        ("a text with a sum", f"x = f'{{{'1+' * 8_000}1}}'"),
    ):
        yield name, f"cfg = llama3_8b_pretrain_config()\n{text}\n"


def argument_texts() -> Iterator[tuple[str, str]]:
    """Arguments of Megatron-LM."""
    yield "4,301 digits", "--num-layers " + "9" * 4301
    yield "exponent", "--num-layers 1e999999999 --seq-length 1E+999999999"
    yield "many options", " ".join(f"--o{n}" for n in range(30_000))
    yield "one option", repeated("--a ")
    yield "many words", "--a " + repeated("1 ", 240_000)
    yield "words on lines", "--a " + repeated("1\n", 240_000)
    yield "new lines and few words", "\n" * 200_000 + "--a " + "1 " * 16_000
    yield "continued lines", repeated("\\\n")
    yield "comments", repeated("#\n")
    yield "quotes", repeated("''")
    yield "unclosed quotes", "--a " + repeated("'\"", 240_000) + "'"
    yield "backslashes", "--a " + "\\" * 240_001
    yield "one word of quotes", "--a " + repeated('"a"', 240_000)
    yield "layers by the billion", '--num-layers 8 --moe-layer-freq "([0]*1000000000+[1]*1000000000)"'
    yield "nested pattern of layers", '--num-layers 8 --num-experts 8 --moe-layer-freq "' + "([1]*9+" * 10_000 + '"'
    yield "pattern of Python", '--num-layers 8 --num-experts 8 --moe-layer-freq "[9**9**9]"'
    yield "pipeline layout by the billion", '--pipeline-model-parallel-layout "t*999999999|"'
    yield "nested pipeline layout", '--pipeline-model-parallel-layout "' + "(" * 4000 + "t" + ")*9999" * 4000 + '"'
    yield "pipeline layout of empty groups", '--pipeline-model-parallel-layout "' + "()" * 100_000 + '"'
    yield "pipeline layout of open groups", '--pipeline-model-parallel-layout "' + "(t" * 100_000 + '"'
    yield "hybrid pattern", "--num-layers 8 --hybrid-override-pattern " + "M" * 240_000
    yield "batch ramp", "--rampup-batch-size 1 1 99999999999999999999 --global-batch-size 99999999999999999999"
    yield "equals signs", "--a" + "=" * 240_000
    yield "dashes", "-" * 240_000
    yield "programs", repeated("a.py ")


def script_texts() -> Iterator[tuple[str, str]]:
    """Shell scripts that start a training."""
    toml = dict(toml_texts())
    yield "torchtitan's file of 131,000 dots", heredoc("c.toml", toml["key of 131,000 dots"])
    yield "torchtitan's file of 4,301 digits", heredoc("c.toml", toml["4,301 digits"])
    yield "here-documents", numbered("cat > f{n} <<E\nE") + "\ntorchrun --job.config_file f1"
    yield "here-documents that begin", numbered("cat > f{n} <<E{n}")
    yield "here-documents on one line", repeated("cat > f <<E ")
    yield "cat without space", repeated("cat>")
    yield "cat with long names", "cat>" + "a" * 249_000
    yield "launch after launch", repeated("accelerate launch ")
    yield "launch and spaces", "accelerate" + " " * 249_000
    yield "train after train", repeated("run_train.py ")
    yield "train and open ends", repeated("run_train.py --config-file")
    yield "pretrain after pretrain", repeated("pretrain_a.py ")
    yield "pretrain without end", "pretrain_" + "a" * 249_000
    yield "config files", repeated("--deepspeed x ")
    yield "quotes after pretrain", "pretrain_gpt.py " + repeated("'\"", 240_000)
    yield (
        "variables that double",
        "a0=xxxxxxxx\n"
        + "\n".join(f"a{n}=$a{n - 1}$a{n - 1}" for n in range(1, 64))
        + ("\npretrain_gpt.py --num-layers $a63"),
    )
    yield "lines", repeated("\n")
    yield "other line ends", repeated("\x0b\x0c\x1c\u2028")
    yield "loops", "for i in $(seq 1 999999999); do pretrain_gpt.py --num-layers $i; done"


def heredoc(name: str, text: str) -> str:
    """A script that writes a file and trains with it."""
    return f"cat > {name} <<'END_OF_FILE'\n{text}\nEND_OF_FILE\ntorchrun -m torchtitan.train --job.config_file {name}\n"


def message_texts() -> Iterator[tuple[str, str]]:
    """Messages of memory that ran out."""
    base = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
    yield "190,000 digits", base + "9" * 190_000 + " GiB"
    yield "4,301 digits", base + "9" * 4301 + " GiB. GPU 0 has a total capacity of " + "9" * 4301 + " GiB"
    yield "amounts", base + repeated("1 GiB of ", 190_000)
    yield "phrases", repeated("CUDA out of memory. Tried to allocate 1 GiB. ", 190_000)
    yield "near words", repeated("CUDA out of memory. Tried to allocat ", 190_000)
    yield "NCCL warnings", repeated("NCCL WARN Cuda failure ", 190_000)
    yield "escapes", repeated("\x1b[0", 190_000)
    yield "ranks", repeated("[rank0]:[rank", 190_000)
    yield "spaces", base + " " * 190_000 + "GiB"
    yield "table bars", "CUDA memory summary, device ID 0\n" + repeated("|", 190_000)
    yield "table rows", "CUDA memory summary, device ID 0\n" + repeated("| Allocated memory | 1 B | 1 B |\n", 190_000)
    yield "table of spaces", "CUDA memory summary, device ID 0\n| Allocated memory" + " " * 190_000 + "|"
    yield "exponents", base + "1e999999999 GiB"
    yield "dots", base + "." * 190_000
    yield "commas", base + "9," * 90_000 + " MiB"


def import_bodies(rng: Random) -> Iterator[Body]:
    """Framework files through their own route."""
    texts = {
        "torchtitan": toml_texts(), "nanotron": yaml_texts(), "accelerate": yaml_texts(), "deepspeed": json_texts(),
        "megatron-lm": argument_texts(), "megatron-bridge": python_texts(),
    }  # fmt: skip
    for kind, found in texts.items():
        for name, text in found:
            yield Body(name=f"{kind} import: {name}", path=f"/v1/imports/{kind}", content=text.encode(), media=TEXT)
    for kind, letters in (
        ("torchtitan", '[]{}=.,"a1\n#'),
        ("nanotron", "[]{}:,-&*!?|> a1\n"),
        ("megatron-lm", "-=a1 '\\\n#"),
        ("megatron-bridge", "()[]{}=.,:\"'\\ a1\n#"),
    ):
        for number in range(3):
            text = "".join(rng.choices(letters, k=FILE_BYTES))
            yield Body(
                name=f"{kind} import: noise {number}", path=f"/v1/imports/{kind}", content=text.encode(), media=TEXT
            )


def launched_bodies() -> Iterator[Body]:
    """The same texts as the launcher's own words of a check, as a job of Slurm and of Kubernetes."""
    known = {"key of 131,000 dots", "4,301 digits", "nested arrays", "one table of long dotted keys"}
    chosen = [("torchtitan", name, text) for name, text in toml_texts() if name in known]
    chosen += [
        ("nanotron", name, text) for name, text in yaml_texts() if name in ("nested lists", "compact nested lists")
    ]
    chosen += [("deepspeed", name, text) for name, text in json_texts() if name in ("nested lists", "4,301 digits")]
    chosen += [("megatron-lm", name, text) for name, text in argument_texts() if name in ("4,301 digits", "many words")]
    chosen += [("script", name, text) for name, text in script_texts()]
    for kind, name, text in chosen:
        launch = {"launch": {"format": kind, "content": text}, "cluster": CLUSTER}
        yield Body(name=f"check, {kind}: {name}", path="/v1/check", content=json.dumps(launch).encode())
    for name, text in script_texts():
        job = {"script": text, "nodes": 1, "tres_per_node": "gres/gpu:h100:8"}
        yield Body(name=f"slurm check: {name}", path="/v1/adapters/slurm/check", content=json.dumps(job).encode())
        review = json.dumps(admission(text)).encode()
        path = f"/v1/adapters/kubernetes/admission/{ADMISSION_TOKEN}"
        yield Body(name=f"webhook: {name}", path=path, content=review, keyless=True)


def admission(script: str, **parts: Any) -> dict[str, Any]:
    """A review of a Job that runs a script."""
    container = {"name": "x", "command": ["bash", "-c", script], "resources": {"limits": {"nvidia.com/gpu": 8}}}
    job = {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "x", "annotations": {"traincost/question": '{"cluster": {"gpu": "h100"}}'}},
        "spec": {"template": {"spec": {"containers": [container]}}}, **parts,
    }  # fmt: skip
    request = {"uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": "CREATE", "object": job}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def webhook_bodies() -> Iterator[Body]:
    """Objects that only the webhook reads."""
    path = f"/v1/adapters/kubernetes/admission/{ADMISSION_TOKEN}"

    def annotated(text: str) -> bytes:
        return json.dumps(admission("x", metadata={"annotations": {"traincost/question": text}})).encode()

    for name, text in json_texts():
        yield Body(name=f"webhook annotation: {name}", path=path, content=annotated(text), keyless=True)
        if name != "half a surrogate":
            yield Body(name=f"webhook body: {name}", path=path, content=text.encode(), keyless=True)
    pods = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}] * 8_000}
    spec = {"tasks": [{"replicas": 1 << 20, "template": {"spec": pods}}]}
    yield Body(
        name="webhook: 8,000 containers",
        path=path,
        content=json.dumps(admission("x", spec=spec)).encode(),
        keyless=True,
    )
    tasks = [
        {"replicas": 1, "template": {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}]}}}
    ]
    job_set = {"replicatedJobs": [{"replicas": 9, "template": {"spec": {"tasks": tasks * 5_000}}}]}
    body = json.dumps(admission("x", kind="JobSet", spec=job_set)).encode()
    yield Body(name="webhook: 5,000 tasks of a JobSet", path=path, content=body, keyless=True)


def measurement_bodies() -> Iterator[Body]:
    """Files of measurements."""
    head = "device,dtype,rows,columns,inner,seconds\n"
    row = "NVIDIA H100 80GB HBM3,bf16,{},4096,4096,0.001\n"
    tables = {
        "4,301 digits": head + row.format("9" * 4301),
        "exponent": head + row.format("1e999999999"),
        "400 digits": head + row.format("9" * 400),
        "columns": repeated("device,") + "\n",
        "long cell": head + row.format("1" * 200_000),
        "quotes": head + '"' * 240_001,
        "empty lines": head + "\n" * 900_000,
        "lines": head + repeated(row.format(4096), 1_000_000),
        "tiny and huge numbers": head + "x,bf16,1,1,1,1e-320\nx,bf16,1,1,1,1e308\nx,bf16,1,1,1,5e-324\n",
    }
    for name, text in tables.items():
        yield Body(
            name=f"gemm table: {name}", path="/v1/measurements/imports/gemm-csv", content=text.encode(), media=TEXT
        )
    segment = '{"device":0,"total_size":1,"allocated_size":1}'
    event = '{"action":"alloc","size":1}'
    snapshots = {
        "nested lists": '{"segments":' + "[" * 400_000 + "]" * 400_000 + "}",
        "size of 400 digits": '{"segments":[{"total_size":' + "9" * 400 + "}]}",
        "size of 4,301 digits": '{"segments":[{"total_size":' + "9" * 4301 + "}]}",
        "traces times segments": '{"segments":['
        + "{}," * 100_000
        + segment
        + '],"device_traces":['
        + "[]," * 150_000
        + "[]]}",
        "events": '{"segments":[],"device_traces":[[' + f"{event}," * 34_000 + event + "]]}",
        "peaks of many devices": '{"segments":['
        + ",".join(f'{{"device":{n},"total_size":1,"allocated_size":1}}' for n in range(9_000))
        + '],"device_traces":['
        + "[]," * 100_000
        + "[]]}",
        "sizes that add up": '{"segments":[],"device_traces":[['
        + ",".join(f'{{"action":"alloc","size":{"9" * 300}}}' for _ in range(2_900))
        + "]]}",
    }
    for name, text in snapshots.items():
        path = "/v1/measurements/imports/memory-snapshot"
        yield Body(
            name=f"snapshot: {name}", path=path, content=text.encode(), media=TEXT, query={"device": "NVIDIA H100"}
        )
    outputs = {
        "ranks": numbered("#  Rank  {n} Group  0 Pid 1 on    host device  0 [0x1b] NVIDIA H100 80GB HBM3", 900_000),
        "open device lines": repeated("# Rank 0 Pid 1 on host device 0 [" + " " * 200, 900_000),
        "one long line": "# Rank 0 Pid 1 on host device 0 [0x1b] " + "a " * 400_000,
        "marks": repeated("[1,0]<stdout>: ", 900_000),
        "4,301 digits": nccl("9" * 4301),
        "infinite size": nccl("1e400"),
        "columns": "# size count type redop root " + repeated("time algbw busbw #wrong ", 900_000),
    }
    for name, text in outputs.items():
        yield Body(
            name=f"nccl-tests: {name}", path="/v1/measurements/imports/nccl-tests", content=text.encode(), media=TEXT
        )


def nccl(size: str) -> str:
    """The output of nccl-tests with one row of a size."""
    return f"""# nThread 1 nGpus 2
#  Rank  0 Group  0 Pid 1 on    host device  0 [0x1b] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid 1 on    host device  1 [0x1b] NVIDIA H100 80GB HBM3
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
   {size}      67108864     float     sum      -1   1119.8  239.71  419.49      0   1117.4  240.24  420.42      {size}
"""


def table_bodies() -> Iterator[Body]:
    """Tables of prices and of Slurm's accounting."""
    head = "provider,gpu,region,price_model,usd_per_gpu_hour\n"
    prices = {
        "4,301 digits": head + "x,h100,all,on-demand," + "9" * 4301 + "\n",
        "exponents": head + "x,h100,all,on-demand,1e999999999\nx,h100,all,on-demand,1e-999999999\n",
        "denormal": head + "x,h100,all,on-demand,5e-324\n",
        "long cell": head + "x" * 500_000 + ",h100,all,on-demand,1\n",
        "quotes": head + '"' * 2_000_001,
        "columns": "provider," * 400_000,
        "columns of one row": head + "," * 3_000_000,
        "empty lines": head + "\n" * 4_000_000,
        "wrong rows": head + repeated("a,b,c,d,e\n", 3_900_000),
        "rows of one id": head + repeated("x,h100,all,on-demand,1\n", 3_900_000),
        "unknown GPUs": head + numbered("x,gpu{n},all,on-demand,1", 3_900_000),
    }
    for name, text in prices.items():
        query = {"dry_run": "true"}
        yield Body(name=f"prices: {name}", path="/v1/prices/import", content=text.encode(), media=CSV, query=query)
    names = "JobID|State|ElapsedRaw|AllocTRES|Start|Comment\n"
    job = "{n}|COMPLETED|86400|gres/gpu=8|2026-11-20T08:00:00|est_0123456789abcdef0123456789abcdef"
    jobs = {
        "jobs": names + numbered(job, 3_900_000),
        "columns": "JobID|" * 600_000,
        "delimiters": names + "1|COMPLETED|1|gres/gpu=8|" + "|" * 3_900_000,
        "resources": names + "1|COMPLETED|1|" + repeated("gres/gpu=8,", 3_900_000) + "|2026-11-20T08:00:00|x",
        "4,301 digits": names + "1|COMPLETED|" + "9" * 4301 + "|gres/gpu=" + "9" * 4301 + "|2026-11-20T08:00:00|x",
        "ids in a comment": names + "1|COMPLETED|1|gres/gpu=8|2026-11-20T08:00:00|" + repeated("est_", 3_900_000),
        "lines": names + "\n" * 3_900_000,
        "moments": names + "1|COMPLETED|1|gres/gpu=8|9999-99-99T99:99:99|x\n2|COMPLETED|1|gres/gpu=8|999999999999|x",
    }
    for name, text in jobs.items():
        yield Body(name=f"sacct: {name}", path="/v1/reconciliations", content=text.encode(), media=TEXT)
    documents = {
        "nested lists": '{"jobs":' + "[" * 900_000 + "]" * 900_000 + "}",
        "jobs": '{"jobs":[' + "{}," * 900_000 + "{}]}",
        "4,301 digits": '{"jobs":[{"job_id":' + "9" * 4301 + ',"time":{"elapsed":1e308}}]}',
    }
    for name, text in documents.items():
        yield Body(name=f"sacct document: {name}", path="/v1/reconciliations", content=text.encode())


CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
}  # fmt: skip


def question_bodies() -> Iterator[Body]:
    """Questions whose values are huge, deep or many."""
    deep: Any = 1
    for _ in range(900):
        deep = {"a": deep}
    configs: dict[str, dict[str, Any]] = {
        "deep rope_scaling": {"rope_scaling": deep},
        "4,000 digits": {"num_hidden_layers": int("9" * 4000)},
        "many layers": {"num_hidden_layers": 10**12},
        "long layer_types": {"layer_types": ["full_attention"] * 50_000, "num_hidden_layers": 50_000},
        "unknown names": {f"x{n}": n for n in range(40_000)},
        "pattern of layers": {"model_type": "nemotron_h", "hybrid_override_pattern": "M*-" * 80_000},
        "experts": {"model_type": "mixtral", "num_local_experts": 10**15, "num_experts_per_tok": 10**15},
        "infinite text": {"hidden_size": "1e999999999"},
    }
    for name, parts in configs.items():
        question = {**QUESTION, "model": {"hf_config": {**CONFIG, **parts}}}
        for path in ("/v1/check", "/v1/estimates"):
            yield Body(name=f"{path[4:]} config: {name}", path=path, content=json.dumps(question).encode())
        yield Body(
            name=f"model import: {name}", path="/v1/models/import", content=json.dumps({**CONFIG, **parts}).encode(),
            query={"slug": "attack"},
        )  # fmt: skip
    recipe = QUESTION["recipe"]
    changes: dict[str, dict[str, Any]] = {
        "50,000 stages": {"recipe": {**recipe, "stages": [{"until_tokens": n} for n in range(50_000)]}},
        "long stage_layers": {"layout": {"pipeline": 8, "stage_layers": [1] * 100_000}},
        "long names": {"model": "a" * 900_000},
        "long GPU": {"cluster": {"gpu": "h" * 900_000, "gpus": 8}},
        "many unknown fields": {f"f{n}": 1 for n in range(60_000)},
        "free pool of many": {"free_pool": [CLUSTER] * 30_000},
        "recompute of many modules": {"recipe": {**recipe, "recompute": {"modules": ["mlp"] * 60_000}}},
    }
    for name, parts in changes.items():
        yield Body(name=f"check: {name}", path="/v1/check", content=json.dumps({**QUESTION, **parts}).encode())
    for name, text in json_texts():
        for path in ("/v1/check", "/v1/plans", "/v1/worker/claim", "/v1/sweeps"):
            yield Body(name=f"{path[4:]} body: {name}", path=path, content=text.encode())
    dots = {"format": "torchtitan", "content": "a" + ".a" * 1_800 + "=1"}
    each = {"kind": "check", "body": {"launch": dots, "cluster": CLUSTER}}
    batch = json.dumps({"questions": [each] * 1_000}).encode()
    yield Body(name="batch: 1,000 checks of 1,800 dots", path="/v1/batch", content=batch)


def diagnosis_bodies() -> Iterator[Body]:
    """Messages and statistics of memory that ran out."""
    for name, text in message_texts():
        yield Body(
            name=f"diagnose: {name}", path="/v1/diagnose", content=json.dumps({**QUESTION, "message": text}).encode()
        )
    stats: dict[str, dict[str, Any]] = {
        "4,000 digits": {"allocated_bytes.all.peak": int("9" * 4000)},
        "400 digits": {"reserved_bytes.all.current": int("9" * 400), "allocated_bytes.all.current": -int("9" * 400)},
        "many names": {f"allocated_bytes.all.peak{n}": n for n in range(20_000)},
    }
    for name, found in stats.items():
        content = json.dumps({**QUESTION, "memory_stats": found}).encode()
        yield Body(name=f"diagnose statistics: {name}", path="/v1/diagnose", content=content)


def trace_bodies() -> Iterator[Body]:
    """Traces of a profiler, plain and compressed."""
    event = '{"ph": "X", "cat": "cpu_op", "name": "aten::mm%s", "pid": 1, "tid": 1, "ts": %s, "dur": %s}'
    lists = {
        "bomb": gzip.compress(b" " * (600 << 20), 1),
        "metadata": gzip.compress(b'{"traceEvents": [' + b'{"ph": "M", "args": {"a": [1, 2]}},' * 2_000_000, 1),
        "deep": b'{"traceEvents": [' + b"[" * 20_000_000,
        "nested": ",".join(event % ("", n, 200_000 - 2 * n) for n in range(100_000)),
        "names": ",".join(event % (n, n, 1) for n in range(30_000)),
        "digits": ",".join(event % ("", "9" * 4_000, 1) for _ in range(10_000)),
        "never closed": b'{"traceEvents": ["' + b"a" * 50_000_000,
    }
    for name, text in lists.items():
        content = text if isinstance(text, bytes) else f'{{"traceEvents": [{text}]}}'.encode()
        yield Body(name=f"trace: {name}", path="/v1/profiles", content=content, media="application/octet-stream")


def query_bodies() -> Iterator[Body]:
    """Addresses rather than bodies: flat questions, filters and cursors."""
    queries: dict[str, tuple[str, dict[str, str]]] = {
        "integer of an exponent": ("/v1/estimates", {"model": "llama-3.1-8b", "gpus": "1e999999999", "gpu": "h100"}),
        "integer of 4,301 digits": ("/v1/estimates", {"model": "llama-3.1-8b", "gpus": "9" * 4301, "gpu": "h100"}),
        "limit of 4,301 digits": ("/v1/prices", {"limit": "9" * 4301}),
        "cursor of nothing": ("/v1/prices", {"cursor": "A" * 4000}),
        "attempt of many digits": ("/v1/prices", {"usd_per_gpu_hour": "9" * 4301}),
        "metrics of many": ("/v1/cell/table.csv", {"metrics": ";".join(["gpu_hours"] * 2_000)}),
    }
    for name, (path, query) in queries.items():
        yield Body(name=f"query: {name}", path=path, content=b"", media="", query=query)


def bodies(rng: Random) -> Iterator[Body]:
    """Every hostile request, the lighter kinds first."""
    yield from query_bodies()
    yield from diagnosis_bodies()
    yield from trace_bodies()
    yield from measurement_bodies()
    yield from table_bodies()
    yield from question_bodies()
    yield from webhook_bodies()
    yield from import_bodies(rng)
    yield from launched_bodies()


def send(caller: Caller, body: Body) -> tuple[int, float]:
    """Status and seconds of the answer."""
    started = time.monotonic()
    if not body.media:
        answer = caller.http.get(body.path, params=dict(body.query), timeout=PATIENCE_SECONDS)
    else:
        answer = caller.http.post(
            body.path, content=body.content, params=dict(body.query), headers={"content-type": body.media},
            timeout=PATIENCE_SECONDS,
        )  # fmt: skip
    return answer.status_code, time.monotonic() - started


def judge(service: Service, attempt: Attempt, body: Body, callers: tuple[Caller, Caller], beside: Beside) -> None:
    """Send one body and measure what it costs, once more where a check waited: the machine may do other work."""
    for repeat in range(1 + REPEATS):
        problems, waited = cost_of(service, attempt, body, callers, beside)
        if waited <= MOST_BESIDE_SECONDS or problems or repeat == REPEATS:
            break
    problems += [f"a check beside it took {waited:.1f} s"] if waited > MOST_BESIDE_SECONDS else []
    if problems and attempt.worst_status >= 503:
        problems += ["the service does not answer any more"] if service.revive(always=True) else []
    expect(not problems, "; ".join(problems))


def cost_of(
    service: Service, attempt: Attempt, body: Body, callers: tuple[Caller, Caller], beside: Beside
) -> tuple[list[str], float]:
    """What is wrong with one request, and the longest wait of a check beside it."""
    caller = callers[1] if body.keyless else callers[0]
    first, faults = beside.mark(), len(beside.faults)
    problems: list[str] = []
    with service.cost() as cost:
        try:
            attempt.worst_status, _ = send(caller, body)
        except HttpError as error:
            attempt.worst_status = 599
            problems.append(f"no answer: {error!r}")
    attempt.seconds, attempt.memory_bytes = cost.seconds, cost.growth_bytes
    most_seconds = MOST_SECONDS * max(1.0, len(body.content) / 1e6)
    problems += [f"status {attempt.worst_status}"] if 500 <= attempt.worst_status < 599 else []
    problems += [f"{cost.seconds:.1f} s of processor time"] if cost.seconds > most_seconds else []
    problems += [f"{cost.growth_bytes / 1e6:.0f} MB more"] if cost.growth_bytes > MOST_GROWTH_BYTES else []
    problems += beside.faults[faults : faults + 1]
    return problems, max([*beside.seconds[first:], 0.0])


def run(target: Target, report: Report, seed: int) -> None:
    """Send every hostile request to one service."""
    with serving(target) as service:
        key = service.caller("alpha", "read", "write", "worker").key
        checker = service.caller("beta", "read").key
        pending = list(bodies(Random(seed)))  # noqa: S311 - repeatable
        while pending:
            address = service.address
            callers = (Caller(address, key), Caller(address))
            callers[0].post("/v1/check", QUESTION)
            with Beside(Caller(address, checker, timeout=PATIENCE_SECONDS)) as beside:
                while pending and service.address == address:
                    body = pending.pop(0)
                    with report.attempt(FAMILY, LINE, body.name) as attempt:
                        judge(service, attempt, body, callers, beside)
