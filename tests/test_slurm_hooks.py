"""Slurm's hooks with a real Slurm, against a live service and against none."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.live import bearer, serving
from tests.needing import need
from tests.slurm import running

SITE = "gpu=a100-sxm4-80gb&usd_per_gpu_hour=2"
NOWHERE = "127.0.0.1:9"
"""An address where nobody listens."""

SCRIPT = """#!/bin/bash
#SBATCH --nodes={nodes}
#SBATCH --gpus-per-node=8
#SBATCH --time=10
srun torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers {layers} --hidden-size 4096 --num-attention-heads 32 \\
  --ffn-hidden-size 14336 --vocab-size 128256 --swiglu --normalization RMSNorm --disable-bias-linear --bf16 \\
  --position-embedding-type rope --untie-embeddings-and-output-weights --seq-length 4096 --micro-batch-size 1 \\
  --global-batch-size 32 {more} --tensor-model-parallel-size 8 --attention-backend flash
"""

SCRIPTS = Path(__file__).parent / "formats/shell/public"

OK = SCRIPT.format(nodes=1, layers=32, more="--train-iters 2")
WARN = SCRIPT.format(nodes=1, layers=32, more="--train-iters 2000000")
DENY = SCRIPT.format(nodes=1, layers=320, more="--train-iters 2")
OTHER = "#!/bin/bash\n#SBATCH --gpus-per-node=8\nhostname\n"


@pytest.fixture(scope="module", params=["job_submit.lua", "cli_filter.lua"])
def hooked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """The environment of a Slurm with one of the hooks, as the live service gives it out."""
    need("slurm")
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("service")
        headers = bearer(folder, "read") if request.param == LOCKED else {}
        address = stack.enter_context(serving(folder))
        hook = hook_of(address, request.param, headers)
        if headers:
            (folder / "header").write_text("".join(f"{name}: {value}\n" for name, value in headers.items()))
            assert HEADER in hook
            hook = hook.replace(HEADER, str(folder / "header"))
        assert PATIENCE in hook
        hook = hook.replace(PATIENCE, "")
        yield stack.enter_context(running(PLUGIN[request.param], files={request.param: hook}))


PATIENCE = "--connect-timeout 0.1 --max-time 0.15"
"""How long a hook waits before it lets a job through: a machine that runs many tests at once answers later."""

LOCKED, HEADER = "job_submit.lua", "/etc/slurm/traincost.header"
"""The hook that asks a service with keys, and where it looks for one."""

PLUGIN = {"job_submit.lua": "JobSubmitPlugins=lua", "cli_filter.lua": "CliFilterPlugins=lua"}


def hook_of(address: str, name: str, headers: Mapping[str, str]) -> str:
    """A hook as it is served for a site."""
    answer = httpx.get(f"http://{address}/v1/adapters/slurm/{name}?{SITE}", headers=headers, timeout=30)
    assert answer.status_code == 200, answer.text
    return answer.text


def submitted(
    slurm: Mapping[str, str], script: str, folder: Path, *options: str, arguments: Sequence[str] = ()
) -> tuple[int, str, str]:
    """What sbatch returns and says of a script, and the comment that Slurm keeps of the job."""
    file = folder / "train.sbatch"
    file.write_text(script, encoding="utf-8")
    command = ["sbatch", "--parsable", "--hold", f"--output={folder}/said", "--partition=many", *options, str(file)]
    command += arguments
    done = subprocess.run(command, env=slurm, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        return done.returncode, done.stderr, ""
    shown = subprocess.run(
        ["scontrol", "show", "job", done.stdout.strip()], env=slurm, capture_output=True, text=True, check=True
    ).stdout
    return 0, done.stderr, said_of(shown, "Comment")


def said_of(shown: str, name: str) -> str:
    """A field of a job that stands in a line of its own; empty where it is not shown."""
    said = (line.strip().partition("=") for line in shown.splitlines())
    return next((value for field, _, value in said if field == name), "")


def test_a_job_that_fits_is_queued_with_its_estimate_in_the_comment(hooked: Mapping[str, str], tmp_path: Path) -> None:
    code, said, comment = submitted(hooked, OK, tmp_path, "--comment=mine")
    assert (code, said) == (0, "")
    words = comment.split()
    assert words[0] == "mine"
    assert words[1].startswith("est_")


def test_a_job_that_may_take_longer_than_its_time_is_queued_with_a_warning(
    hooked: Mapping[str, str], tmp_path: Path
) -> None:
    code, said, comment = submitted(hooked, WARN, tmp_path)
    assert code == 0
    assert "traincost: warn: days" in said
    assert "exceeds the limit" in said
    assert comment.startswith("est_")


def test_a_job_that_runs_out_of_memory_is_refused_with_the_reason(hooked: Mapping[str, str], tmp_path: Path) -> None:
    code, said, _ = submitted(hooked, DENY, tmp_path)
    assert code != 0
    assert "traincost: deny: out of memory: " in said


@pytest.mark.parametrize("size", ["--ntasks=8", "--nodes=1 --ntasks-per-node=8", "--nodes=8-8"])
def test_gpus_of_tasks_are_those_of_the_job(hooked: Mapping[str, str], tmp_path: Path, size: str) -> None:
    script = "\n".join(line for line in DENY.splitlines() if "--gpus-per-node" not in line and "--nodes" not in line)
    code, said, _ = submitted(hooked, script, tmp_path, "--gpus-per-task=1", *size.split())
    assert code != 0
    assert "traincost: deny: out of memory: " in said


def test_what_cannot_be_judged_is_let_through_and_reported(hooked: Mapping[str, str], tmp_path: Path) -> None:
    code, said, comment = submitted(hooked, OTHER, tmp_path, "--comment=mine est_0 traincost:no_gpus")
    assert (code, comment) == (0, "mine traincost:no_training")
    assert "traincost: unknown: not checked: line 3, column 1: the script starts no training" in said
    assert submitted(hooked, OTHER.replace("#SBATCH --gpus-per-node=8\n", ""), tmp_path) == (0, "", "")


EXAMPLES = {
    "gpt3-175b": "step-batch-size-schedule (line 40)",
    "bert-340m": "line 73, column 33: pretrain_bert.py trains an encoder",
    "t5-220m": "line 72, column 28: pretrain_t5.py trains an encoder and a decoder",
    "gptoss": "no-rope-fusion (line 130)",
    "llama3-8b-fp8": "the GPU has no published rate for fp8 arithmetic",
    "mamba": "hybrid-layer-pattern (line 62)",
    "llama3-8b-fsdp": "use-nccl-ub (line 122)",
    "deepseek-v3-fsdp": "moe-flex-dispatcher-backend (line 94)",
    "mixtral-8x7b": "",
}
"""Megatron-LM's example scripts, and why they are not judged; empty for those that are."""


@pytest.mark.parametrize(("name", "why"), EXAMPLES.items())
def test_examples_of_megatron_are_judged_or_the_line_is_shown(
    hooked: Mapping[str, str], tmp_path: Path, name: str, why: str
) -> None:
    script = (SCRIPTS / f"megatron-{name}.sh").read_text(encoding="utf-8")
    code, said, comment = submitted(hooked, script, tmp_path, "--nodes=4", "--gpus-per-node=8")
    if why:
        assert code == 0
        assert "not checked: " in said
        assert why in said
    else:
        assert comment.startswith("est_") or "traincost: deny: out of memory: " in said


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_a_job_is_judged_with_its_arguments_and_its_environment(
    hooked: Mapping[str, str], tmp_path: Path, how: str
) -> None:
    script = DENY.replace("--num-layers 320", '--num-layers "${1:-$LAYERS}"')
    assert "$LAYERS" in script
    for layers, denied in (("320", True), ("2", False)):
        arguments = [layers] if how == "argument" else []
        environment = {**hooked, **({} if arguments else {"LAYERS": layers})}
        code, said, _ = submitted(environment, script, tmp_path, arguments=arguments)
        assert ((code != 0), "traincost: deny: out of memory: " in said) == (denied, denied)


IN_FILES = """#!/bin/bash
#SBATCH --gpus-per-node=8
CONFIGS=conf
torchrun --nproc-per-node 8 sft.py --model_name_or_path meta-llama/Llama-2-7b-hf --deepspeed "$CONFIGS/ds.json" \\
  --per_device_train_batch_size 1 --max_length 1024 --bf16 --dataset_name a --output_dir out
"""


def with_settings(folder: Path) -> str:
    """The option of sbatch for a folder with the settings that a script names, and a file that it does not."""
    (folder / "conf").mkdir()
    (folder / "conf" / "ds.json").write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}')
    (folder / "conf" / "other.json").write_text("{")
    return f"--chdir={folder}"


def test_files_that_a_script_names_are_read_as_the_user_alone(hooked: Mapping[str, str], tmp_path: Path) -> None:
    code, said, comment = submitted(hooked, IN_FILES, tmp_path, with_settings(tmp_path))
    assert code == 0
    if PLUGIN["cli_filter.lua"] in Path(hooked["SLURM_CONF"]).read_text(encoding="utf-8"):
        assert comment.startswith("est_"), said
        program = "from megatron.bridge.recipes import llama\ncfg = llama32_1b_pretrain_config()\n"
        (tmp_path / "own.py").write_text(program)
        script = "#!/bin/bash\n#SBATCH --gpus-per-node=8\ntorchrun --nproc-per-node 8 own.py\n"
        assert submitted(hooked, script, tmp_path, f"--chdir={tmp_path}")[2].startswith("est_")
    else:
        assert comment == "traincost:missing_file"
        assert "deepspeed names conf/ds.json, which was not sent" in said


def test_a_job_that_was_judged_with_its_files_keeps_its_estimate(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        hooks = {name: hook_of(address, name, {}).replace(PATIENCE, "") for name in PLUGIN}
        with running("\n".join(PLUGIN.values()), files=hooks) as slurm:
            code, said, comment = submitted(slurm, IN_FILES, tmp_path, with_settings(tmp_path))
    assert (code, "unknown" in said) == (0, False)
    assert comment.startswith("est_")


@pytest.mark.parametrize("name", PLUGIN)
def test_without_the_service_every_job_is_accepted_and_that_is_told(name: str, tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        hook = hook_of(address, name, {}).replace(address, NOWHERE)
    assert NOWHERE in hook
    with running(PLUGIN[name], files={name: hook}) as slurm:
        code, said, comment = submitted(slurm, DENY, tmp_path)
        log = Path(slurm["SLURM_CONF"]).with_name("slurmctld.said").read_text(encoding="utf-8")
    told = "traincost: not checked: no answer: nobody listens at the service's address"
    assert (code, comment) == (0, "")
    assert told in (said if name == "cli_filter.lua" else log)
    assert name == "cli_filter.lua" or said == ""


def test_a_key_that_does_not_hold_is_told_where_jobs_are_let_through(tmp_path: Path) -> None:
    holds = bearer(tmp_path, "read")
    with serving(tmp_path) as address:
        hook = hook_of(address, LOCKED, holds).replace(HEADER, str(tmp_path / "none")).replace(PATIENCE, "")
        with running(PLUGIN[LOCKED], files={LOCKED: hook}) as slurm:
            assert submitted(slurm, DENY, tmp_path) == (0, "", "")
            log = Path(slurm["SLURM_CONF"]).with_name("slurmctld.said").read_text(encoding="utf-8")
    assert "traincost: not checked: no answer: the service refused the question" in log


@pytest.mark.parametrize("place", ["there", "down"])
def test_curl_asks_where_bash_cannot(place: str, tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        hook = hook_of(address, "cli_filter.lua", {}).replace("http://", "HTTP://").replace(PATIENCE, "")
        hook = hook if place == "there" else hook.replace(address, NOWHERE)
        with running(PLUGIN["cli_filter.lua"], files={"cli_filter.lua": hook}) as slurm:
            code, said, comment = submitted(slurm, OK, tmp_path)
    assert code == 0
    assert comment.startswith("est_") is (place == "there")
    assert ("nobody listens at the service's address" in said) is (place == "down")
