"""Pages of the guide: their commands and programs are run live, and the answers compared with those that they show."""

import json
import os
import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest

from service.answers.diagnoses import LONGEST_MESSAGE
from service.client import Client
from service.settings import PREFIX, RoleScope, Settings
from tests.api.asking import NCCL_TESTS, RECORDS
from tests.api.fake_worker import FakeWorker
from tests.commands import Commands
from tests.evaluation.rows import ship_few
from tests.guide_pages import Block, Send, blocks_of, by_request, differences, walk
from tests.house.source import ROOT, SERVICE
from tests.live import DOCUMENTED, serving
from tests.prestarted import ran

GUIDE = SERVICE / "web" / "guide"
BLOCKS = {page.stem: blocks_of(page) for page in GUIDE.glob("*.html")}
SHOWN = {
    name: [(block, shown.text) for block, shown in pairwise(blocks) if shown.kind == "answer"]
    for name, blocks in BLOCKS.items()
}
"""By page, each block with the answer below it."""


def text_of(name: str) -> str:
    return (GUIDE / f"{name}.html").read_text(encoding="utf-8")


def printed(program: str, address: str, folder: Path) -> str:
    """What a program prints that is copied from a page."""
    (folder / "program.py").write_text(program.replace(DOCUMENTED, address), encoding="utf-8")
    done = ran(["program"], folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def compare_page(name: str, send: Send, address: str, folder: Path) -> int:
    """Compare every answer that a page shows, and count them."""
    told = walk(BLOCKS[name], send, address, folder)
    for shown, answered in told:
        assert differences(json.loads(shown), answered) == []
    return len(told)


def test_measurements_become_a_calibration_as_the_page_shows(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        compared = compare_page("calibrating", by_request(address, tmp_path), address, tmp_path)
    assert compared == sum(block.kind == "command" for block in BLOCKS["calibrating"])


def test_predictions_are_revealed_as_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Commands
) -> None:
    monkeypatch.chdir(tmp_path)
    command, ran_words = commands("accuracy"), 0
    for block in BLOCKS["predicting"]:
        if block.kind == "file":
            Path(block.title).write_text(block.text + "\n", encoding="utf-8")
        words = shlex.split(block.text) if block.kind == "shell" else []
        if words[:2] == ["traincost", "accuracy"]:
            said, ran_words = command(*words[2:]), ran_words + 1
            assert said.code == 0, said.err
    assert ran_words == 2
    assert re.search(r"^all +2 ", said.out, re.MULTILINE)


def test_files_come_in_from_the_command_line_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Commands
) -> None:
    ship_few(monkeypatch)
    monkeypatch.setenv("TRAINCOST_DATABASE_URL", f"sqlite:///{tmp_path / 'traincost.db'}")
    (tmp_path / "all_reduce.txt").write_text(NCCL_TESTS, encoding="utf-8")
    (tmp_path / "record.json").write_text(json.dumps(RECORDS["records"][0]), encoding="utf-8")
    (tmp_path / "snapshot.pickle").write_bytes(b"\x80\x04.")
    bring = commands("import-measurements")
    said = bring("nccl-tests", str(tmp_path / "all_reduce.txt"), "--tell", "run=ours")
    assert (said.code, said.out) == (0, "4 measurements came in as run ours; 0 are in quarantine\n")
    own = json.loads(bring("records", str(tmp_path / "record.json"), "--tell", "run=node-7", "--json").out)
    assert (own["measurements"], own["quarantined"]) == (6, 0)
    for words, reason in (
        (("memory-snapshot", str(tmp_path / "snapshot.pickle")), "this is a pickle"),
        (("gemm-csv", str(tmp_path / "all_reduce.txt")), "line 1"),
        (("excel", str(tmp_path / "record.json")), "no such format"),
        (("nccl-tests", str(tmp_path / "absent.txt")), "cannot be read"),
        (("nccl-tests", str(tmp_path / "all_reduce.txt"), "--tell", "ours"), "not written as name=value"),
    ):
        refused = bring(*words)
        assert refused.code == 2
        assert reason in refused.err
    shown = json.loads(commands("accuracy")("--own", "--json").out)["measured"]["own"]
    assert {group["probe"]: group["scored"] for group in shown} == {"collective": 4, "gemm": 6}
    assert all(0 < group["mape_fraction"] < 0.5 for group in shown)


@pytest.fixture(scope="module")
def with_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a service with its worker."""
    with serving(tmp_path_factory.mktemp("guides"), with_worker=True) as found:
        yield found


@pytest.mark.parametrize(
    ("program", "shown"),
    [(block.text, shown.text) for block, shown in pairwise(BLOCKS["clients"]) if block.kind == "python"],
)
def test_every_program_prints_what_the_page_shows(with_worker: str, program: str, shown: str, tmp_path: Path) -> None:
    assert re.fullmatch(re.escape(shown).replace("…", r"[\s\S]+"), printed(program, with_worker, tmp_path))


@pytest.mark.parametrize("page", ["clients", "sweeps"])
def test_the_command_is_answered_as_the_page_shows(with_worker: str, page: str, tmp_path: Path) -> None:
    ((command, shown),) = [(block.text, shown) for block, shown in SHOWN[page] if block.text.startswith("curl ")]
    answer: Any = json.loads(by_request(with_worker, tmp_path)(command))
    assert differences(json.loads(shown), answer) == []


def test_every_method_that_the_page_names_is_there() -> None:
    with Client("http://localhost") as client:
        (said,) = re.findall(r"The other methods are (.*?):", text_of("clients"), re.DOTALL)
        methods = re.findall(r"<code>(\w+)</code>", said)
        (said,) = re.findall(r"change is lost: (.*?) are all read", text_of("clients"), re.DOTALL)
        lists = re.findall(r"<code>(\w+)</code>", said)
        assert len(methods) > 10
        assert all(callable(getattr(client, name)) for name in methods)
        assert all(callable(getattr(client, name).update) for name in lists)


def test_a_program_and_the_command_line_sweep_as_the_page_shows(with_worker: str, tmp_path: Path) -> None:
    ((program, shown),) = [(block.text, shown) for block, shown in SHOWN["sweeps"] if block.kind == "python"]
    assert printed(program, with_worker, tmp_path) == shown
    assert len((tmp_path / "rows.csv").read_text(encoding="utf-8").splitlines()) == 101
    ((command, shown),) = [(block.text, shown) for block, shown in SHOWN["sweeps"] if block.kind == "shell"]
    body = program[program.index("create(") + len("create(") : program.index("})") + 1]
    (tmp_path / "sweep.json").write_text(json.dumps(eval(body)), encoding="utf-8")  # noqa: S307 - of our own page
    done = ran(["service", *shlex.split(command)[1:], "--processes", "1"], tmp_path, {"PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stdout.strip()) == (0, shown), done.stderr


FAILURES = [block.text for block in BLOCKS["diagnose"] if block.kind == "command"]
DIAGNOSES = [json.loads(block.text) for block in BLOCKS["diagnose"] if block.kind == "answer"]


def test_causes_are_told_as_the_page_shows(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        send = by_request(address, tmp_path)
        answers = [json.loads(send(command)) for command in FAILURES]
    assert len(DIAGNOSES) == len(answers) == 2
    for shown, answer in zip(DIAGNOSES, answers, strict=True):
        answer["lines"], answer["changes"] = answer["lines"][:2], answer["changes"][:1]
        assert differences(shown, answer) == []


def test_the_command_diagnoses_the_same(tmp_path: Path, commands: Commands) -> None:
    body = json.loads(FAILURES[0].partition("-d '")[2].rstrip().removesuffix("'"))
    (tmp_path / "train.log").write_text("step 1\n" + body.pop("message"), encoding="utf-8")
    (tmp_path / "question.json").write_text(json.dumps(body), encoding="utf-8")
    diagnose = commands("diagnose")
    words = str(tmp_path / "question.json"), str(tmp_path / "train.log")
    found = diagnose(*words, "--json")
    assert (found.code, found.err) == (0, "")
    assert json.loads(found.out)["supposition"] == DIAGNOSES[0]["supposition"]
    said = diagnose(*words).out
    assert said.startswith("larger than predicted")
    assert "What to do" in said


def test_what_cannot_be_read_is_said_in_a_line(tmp_path: Path, commands: Commands) -> None:
    (tmp_path / "question.json").write_text("{}", encoding="utf-8")
    (tmp_path / "train.log").write_bytes(b"\xff" * (LONGEST_MESSAGE + 1))
    diagnose = commands("diagnose")
    absent = diagnose(str(tmp_path / "question.json"), str(tmp_path / "absent"))
    assert (absent.code, absent.err.count("\n")) == (2, 1)
    assert "cannot be read: No such file" in absent.err
    assert diagnose(str(tmp_path / "question.json"), str(tmp_path / "train.log")).code == 2


def test_commands_take_the_data_from_one_database_to_another(tmp_path: Path) -> None:
    backup, restore = (block.text for block in BLOCKS["keeping"] if block.kind == "shell")
    with serving(tmp_path):
        _run(backup, tmp_path, "traincost.db")
    _run(restore, tmp_path, "other.db")


def _run(command: str, folder: Path, database: str) -> None:
    """Run a command of the page in this process's own Python, on a database of the test."""
    words = [word.replace("/backups", str(folder)) for word in shlex.split(command) if "=" not in word]
    environment = {**os.environ, "TRAINCOST_DATABASE_URL": f"sqlite:///{folder / database}", "PYTHONPATH": str(ROOT)}
    assert words.pop(0) == "traincost"
    done = ran(["service", *words], env=environment)
    assert done.returncode == 0, done.stderr


def test_days_are_those_of_the_settings() -> None:
    told = dict(re.findall(rf"<code>{PREFIX}(KEEP_\w+_DAYS)</code></td><td>(\d+)</td>", text_of("keeping")))
    fields = {name.upper(): field for name, field in Settings.model_fields.items() if name.startswith("keep_")}
    assert {name: float(days) for name, days in told.items()} == {name: one.default for name, one in fields.items()}


def test_a_worker_measures_as_the_page_shows(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        send = by_request(address, tmp_path)

        def ask(method: str, path: str, **request: Any) -> httpx.Response:
            return httpx.request(method, f"http://{address}{path}", timeout=30, **request)

        def send_and_work(command: str) -> bytes:
            answer = send(command)
            worker = FakeWorker(ask)
            job = worker.claim()
            if job is not None:
                worker.finish(job, result={"records": [worker.record(task) for task in job["payload"]["tasks"]]})
            return answer

        assert compare_page("measuring", send_and_work, address, tmp_path) == 4


def test_it_names_every_probe_and_every_verdict() -> None:
    said = text_of("measuring")
    for word in ("context", "gemm", "attention", "bandwidth", "elementwise", "collective", "step", "profile"):
        assert f"<code>{word}</code>" in said
    for verdict in ("go", "caution", "no-go"):
        assert f"<strong>{verdict}</strong>" in said


def test_finished_jobs_are_told_as_the_page_shows(tmp_path: Path) -> None:
    checked, reconciled, shown = [block for block in BLOCKS["reconcile"] if block.kind in {"command", "answer"}]
    with serving(tmp_path) as address:
        send = by_request(address, tmp_path)
        estimate_id = send(checked.text).decode().splitlines()[2]
        answer = json.loads(send(reconciled.text.replace("ESTIMATE_ID", estimate_id)))
    assert differences(json.loads(shown.text.replace("ESTIMATE_ID", estimate_id)), answer) == []


def test_commands_have_the_options_that_the_page_names() -> None:
    words = " ".join(block.text for block in BLOCKS["reconcile"] if block.kind == "shell")
    command = (SERVICE / "cli" / "data.py").read_text(encoding="utf-8")
    assert {word for word in words.split() if word in {"--since", "--csv"}} == {"--since", "--csv"}
    assert "since: Since" in command


Told = list[tuple[Block, Block | None, bytes]]


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Every command of the schedulers' page, the block below it where that shows its answer, and the answer."""
    folder = tmp_path_factory.mktemp("schedulers")
    followers = [*BLOCKS["schedulers"][1:], None]
    with serving(folder) as address:
        send = by_request(address, folder)
        return [
            (block, shown if shown is not None and shown.kind != "command" else None, send(patient(block.text)))
            for block, shown in zip(BLOCKS["schedulers"], followers, strict=True)
            if block.kind == "command"
        ]


def patient(command: str) -> str:
    """A command that waits for every alternative, however busy the machine is."""
    return command.replace('"deadline_seconds": 2', '"deadline_seconds": 60')


def test_schedulers_are_answered_as_the_page_shows(scheduled: Told) -> None:
    shown = [(block, answer) for _, block, answer in scheduled if block is not None and block.kind == "answer"]
    assert len(shown) == 2
    for block, answer in shown:
        assert differences(json.loads(block.text), json.loads(answer)) == []


def test_alternatives_are_those_that_the_page_names(scheduled: Told) -> None:
    patches = [one["patch"] for one in json.loads(scheduled[0][2])["alternatives"]]
    assert patches[0] == {"cluster": {"gpu": "b200", "gpus": 8}}
    assert {"layout": {"zero_stage": 1}} in patches


def test_the_lines_for_slurm_are_those_that_the_page_shows(scheduled: Told) -> None:
    ((block, answer),) = [(one, answer) for _, one, answer in scheduled if one is not None and one.kind == "lines"]
    assert re.fullmatch(re.escape(block.text.strip()).replace("…", ".*"), answer.decode().strip())


def test_every_file_is_given_out(scheduled: Told) -> None:
    fetched = [(command.text, answer.decode()) for command, _, answer in scheduled if " -O " in command.text]
    names = {re.sub(r"\?.*", "", text.strip("'")).rpartition("/")[2] for text, _ in fetched}
    held = {path.name for path in (SERVICE / "web" / "adapters").rglob("*.*") if path.suffix != ".pyc"}
    assert names == held - {"ask.lua", "cli_filter.lua"}
    for text, answer in fetched:
        assert "kueue/manifests" in text or re.search(r"https?://127\.0\.0\.1:\d+", answer), text


HOLDERS = ("KEY_OF_VISION", "KEY_OF_SPEECH", "KEY_OF_AN_ADMIN")


def test_keys_are_made_and_used_as_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Commands
) -> None:
    monkeypatch.setenv("TRAINCOST_DATABASE_URL", f"sqlite:///{tmp_path}/traincost.db")
    run = commands("keys")
    lines = [line for block in BLOCKS["keys"] if block.kind == "shell" for line in block.text.splitlines()]
    made = [run(*shlex.split(line)[2:]).out.strip() for line in lines]
    keys = dict(zip(HOLDERS, made, strict=True))

    def filled(command: str) -> str:
        return re.sub("|".join(HOLDERS), lambda held: keys[held[0]], command)

    (limits,) = [block.text.splitlines() for block in BLOCKS["keys"] if block.kind == "limits"]
    assert [run(*shlex.split(filled(command))[2:]).code for command in limits] == [0, 0]
    with serving(tmp_path) as address:
        plain = by_request(address, tmp_path)

        def send(command: str) -> bytes:
            return plain(filled(command))

        asked = {"Authorization": f"Bearer {keys['KEY_OF_SPEECH']}"}
        first = httpx.get(f"http://{address}/v1/choices", headers=asked, timeout=30).headers
        assert compare_page("keys", send, address, tmp_path) == 7
    (create, look, end) = next(block.text.splitlines() for block in BLOCKS["keys"] if block.kind == "rotation")
    taking = run(*shlex.split(create)[2:]).out.strip()
    assert "last_used_at" in run(*shlex.split(look)[2:]).out
    assert run(*shlex.split(end.replace("KEY_OF_VISION", taking))[2:]).out.startswith("revoked tck_")
    (shown,) = [block.text for block in BLOCKS["keys"] if block.kind == "headers"]
    assert {name: first[name] for name in ("RateLimit-Policy", "RateLimit")} == dict(
        line.split(": ", 1) for line in shown.splitlines()
    )


def test_settings_of_tokens_are_those_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    said = text_of("keys")
    known = {PREFIX + name.upper() for name in Settings.model_fields if name.startswith("oidc_")}
    assert set(re.findall(rf"{PREFIX}OIDC_[A-Z_]+", said)) == known
    (lines,) = [block.text.splitlines() for block in BLOCKS["keys"] if block.kind == "lines"]
    for line in lines:
        monkeypatch.setenv(*line.split("=", 1))
    settings = Settings()
    assert settings.oidc_roles == (("ml-engineers", "write"), ("finance", "read"), ("platform", "admin"))
    (started,) = [block.text for block in BLOCKS["keys"] if block.kind == "tokens"]
    for word in shlex.split(started)[:-2]:
        monkeypatch.setenv(*word.split("=", 1))
    assert Settings().oidc_roles == (("ml-engineers", "write"), ("platform", "admin"))


def test_every_scope_is_listed() -> None:
    (table,) = [block.text for block in BLOCKS["keys"] if block.kind == "scopes"]
    rows = [line.split("\t")[0].strip() for line in table.strip().splitlines()[1:] if line.strip()]
    assert rows == ["read", "write", "sheet", "worker", "admin"]
    assert set(rows) == set(get_args(RoleScope))


QUESTIONS = (
    "expected peak", "wrapping", "largest micro-batch", "longest sequence", "data-parallel group",
    "optimizer on the host", "activations should be computed again", "selective policies", "unit by unit",
    "reduction in fp32", "mixed-precision policy", "HSDP", "resharding to a smaller group",
    "no resharding after the forward pass",
)  # fmt: skip
"""What the memory tracker of PyTorch's FSDP was asked (pull request 125323): each is a heading of the page, with
one command and one answer below it."""


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[str, Any]]]:
    """Each answer that the tuning page shows, and what is answered."""
    folder = tmp_path_factory.mktemp("tuning")
    with serving(folder) as address:
        yield walk(BLOCKS["tuning"], by_request(address, folder), address, folder)


def test_every_setting_is_tuned_as_the_page_shows(tuned: list[tuple[str, Any]]) -> None:
    assert len(tuned) == len(QUESTIONS)
    for text, answered in tuned:
        assert differences(json.loads(text), answered) == []


def test_each_question_of_tuning_is_one_call() -> None:
    sections = re.split(r"<h2>(\d+)\. ", text_of("tuning"))[1:]
    numbers, texts = sections[::2], sections[1::2]
    assert numbers == [str(place) for place in range(1, len(QUESTIONS) + 1)]
    for question, text in zip(QUESTIONS, texts, strict=True):
        heading, _, rest = text.partition("</h2>")
        assert question in heading
        assert rest.count('class="command"') == rest.count('class="answer"') == 1
        assert rest.count(DOCUMENTED) == 1


def test_no_row_of_tuning_is_refused(tuned: list[tuple[str, Any]]) -> None:
    rows = [row for _, answered in tuned for row in answered.get("rows", ())]
    assert len(rows) > 30
    assert {row["status"] for row in rows} == {200}


def test_every_choice_changes_something(tuned: list[tuple[str, Any]]) -> None:
    for _, answered in tuned:
        first, *rows = answered.get("rows", ({},))
        for row in (row for row in rows if row["values"] != first["values"]):
            ratios = [ratio for ratio in row["ratios"].values() if ratio is not None]
            assert any(abs(ratio - 1) > 1e-3 for ratio in ratios), row["values"]
