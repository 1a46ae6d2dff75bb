"""`traincost estimate` answers without a server and without a database, and refuses in one line a problem."""

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from service import __version__
from service.catalogue import shipped_catalogue
from service.cli.application import COMMANDS, SHORT_HELP, command_named, main
from service.cli.console import EXIT_CODES
from service.cli.options import COMMON
from service.cli.reports import report
from service.features.estimates.answers import answer
from service.formats.targets import TARGETS
from service.validation.flat import ALIASES, flat_fields
from service.validation.questions import read_question
from service.validation.reading import to_wire
from tests.commands import Command, Commands, Ran

ROOT = Path(__file__).parents[1]
ASKED = ["--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "8", "--sequence-length", "8192"]
BODY: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "recipe": {"sequence_length": 8192},
    "cluster": {"gpu": "h100", "gpus": 8},
}


@pytest.fixture
def run(commands: Commands) -> Command:
    return commands("estimate")


def test_the_table_is_the_answer(run: Command) -> None:
    catalogue = shipped_catalogue()
    found = answer(read_question(BODY, catalogue), catalogue)
    assert run(*ASKED) == Ran(0, f"{report(found)}\n", "")


def test_json_is_what_the_api_sends(run: Command) -> None:
    catalogue = shipped_catalogue()
    body = {
        **BODY,
        "layout": {"tensor": 2, "stage_layers": [16, 16], "pipeline": 2},
        "price": {"usd_per_gpu_hour": 2.5},
    }
    more = ["--tp", "2", "--pp", "2", "--stage-layers", "16", "--stage-layers", "16", "--usd-per-gpu-hour", "2.5"]
    ran = run(*ASKED, *more, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out) == json.loads(json.dumps(to_wire(answer(read_question(body, catalogue), catalogue))))


def test_every_field_is_an_option_with_its_meaning(run: Command) -> None:
    shown = run("--help-all").out
    bare = "".join(shown.split())
    for field in flat_fields().values():
        assert re.search(rf"--{field.name.replace('_', '-')}[ ,]", shown)
        assert "".join(field.meaning.split()) in bare
    assert all("".join(meaning.split()) in bare for _, meaning in EXIT_CODES)
    for alias in ALIASES:
        assert re.search(rf"--{alias}[ ,]", shown)


def test_every_option_reaches_the_question(run: Command) -> None:
    texts = {"integer": "1.5", "number": "x", "truth": "perhaps"}
    wrong = [field for field in flat_fields().values() if field.form in texts]
    words = [word for field in wrong for word in (f"--{field.name.replace('_', '-')}", texts[field.form])]
    ran = run(*words)
    for field in wrong:
        assert f'traincost: --{field.name.replace("_", "-")}: {field.name} is "{texts[field.form]}", not ' in ran.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ["--model: ", "--sequence-length: ", "--cluster: "]),
        ([*ASKED, "--tensor", "1,5"], ['--tensor: tensor is "1,5"; a comma']),
        ([*ASKED, "--tp", "2", "--tensor", "2"], ["--tensor: tensor is given 2 times"]),
        ([*ASKED, "--model", "gpt-17"], ["--model: model is given 2 times"]),
        ([*ASKED[2:], "--model", "gpt-17"], ["--model: "]),
        ([*ASKED, "--recompute-layers", "2"], ["--recompute: "]),
        ([*ASKED, "--zero-stage", "7"], ["--zero-stage: "]),
        ([*ASKED, "--precision", "fp7"], ["--precision: "]),
    ],
)
def test_a_refusal_is_one_line_a_problem(words: list[str], expected: list[str], run: Command) -> None:
    ran = run(*words)
    lines = ran.err.splitlines()
    assert (ran.code, ran.out, len(lines)) == (2, "", len(expected))
    for line, start in zip(lines, expected, strict=True):
        assert line.startswith(f"traincost: {start}")
        assert "; " in line


def test_a_refusal_shows_options(run: Command) -> None:
    said = run().err
    assert "e.g. --model llama-3.1-8b\n" in said
    assert "e.g. --gpu h100-sxm5-80gb --gpus 8\n" in said
    assert "{" not in said


def test_the_model_may_stand_alone_and_is_given_once(run: Command) -> None:
    assert run(ASKED[1], *ASKED[2:]) == run(*ASKED)
    twice = run(ASKED[1], *ASKED)
    assert (twice.code, twice.out) == (2, "")
    assert twice.err.startswith("traincost: --model: model is given 2 times")


def test_an_argument_that_a_command_does_not_take_is_named(commands: Commands) -> None:
    for words in (["import", "train.sh", "surplus"], ["keys", "list", "surplus"], ["doctor", "surplus"]):
        ran = commands(words[0])(*words[1:])
        assert (ran.code, ran.out) == (2, "")
        assert "Unexpected argument 'surplus'. Give the name of its option before it" in ran.err


def test_nodes_of_a_gpu_are_its_size(run: Command) -> None:
    assert run(*ASKED[:4], "--nodes", "1", *ASKED[6:]) == run(*ASKED)


def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    monkeypatch.setattr(sys, "argv", ["traincost", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_the_command_says_its_version_and_first_what_people_want(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shown(capsys, monkeypatch, "--version") == f"traincost {__version__}\n"
    short, whole = (shown(capsys, monkeypatch, word) for word in ("-h", "--help-all"))
    assert max(map(len, whole.splitlines())) <= 80
    for title, modules in COMMANDS.items():
        lines = [f"  {name} " for names in modules.values() for name in names]
        assert all(line in whole for line in lines)
        assert (title in short) is (title in SHORT_HELP)
    assert short.index(" estimate ") < short.index(" serve ")
    assert "Args:" not in shown(capsys, monkeypatch, "serve", "--help")


QUESTIONS = [*COMMANDS["Questions, answered here"]["questions"], "export"]


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_help_of_a_command_is_one_screen_with_examples_that_it_understands(name: str, commands: Commands) -> None:
    lines = commands(name)("-h").out.splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 80
    examples = re.sub(r" \\\n +", " ", "\n".join(lines)).split("Examples:\n")[1].split("\n\n")[0].splitlines()
    assert len(examples) >= 2
    assert all(line.startswith(f"  traincost {name} ") for line in examples)
    named = {word for line in examples for word in re.findall(r" (--[a-z-]+)", line)}
    words = [word for option in sorted(named) for word in (option, "no-file.json")]
    errors = [line for line in commands(name)("x", *words, "--unheard-of").err.splitlines() if "No such option" in line]
    assert [line.split()[4] for line in errors] == ["--unheard-of"]


@pytest.mark.parametrize("name", QUESTIONS)
def test_options_of_a_command_are_no_fields(name: str) -> None:
    command = command_named("files" if name == "export" else "questions", name)
    extras = [one.name for one in command.form.extras]
    own = {option.name for option in command.params}
    assert not {*flat_fields(), *ALIASES, *own} & {*extras}
    assert len({one.path for one in command.form.extras}) == len(extras)


def test_examples_of_exports_name_targets(commands: Commands) -> None:
    named = re.findall(r"^  traincost export (\S+)", commands("export")("-h").out, re.MULTILINE)
    assert set(named) <= TARGETS.keys()


def test_common_options_of_the_help_are_fields() -> None:
    names = [name for row, _ in COMMON for name in re.findall(r"--([a-z-]+)", row)]
    assert {ALIASES.get(name, name.replace("-", "_")) for name in names} <= flat_fields().keys()


SEEN = """
import sys
from service.__main__ import main
sys.argv = ["traincost", *sys.argv[1:]]
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def _loaded_by(*words: str) -> set[str]:
    ran = subprocess.run([sys.executable, "-c", SEEN, *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(ran.stderr.split())


def test_the_version_is_printed_before_anything_is_imported() -> None:
    loaded = _loaded_by("--version")
    assert not {"fastapi", "httpx", "numpy", "pydantic", "rich", "sqlalchemy", "typer"} & loaded
    assert {name for name in loaded if name.startswith("service")} <= {"service", "service.__main__"}


def test_an_estimate_imports_no_server_and_no_other_family_of_commands() -> None:
    loaded = _loaded_by("estimate", *ASKED)
    assert not {"fastapi", "httpx", "numpy", "rich", "sqlalchemy", "uvicorn"} & loaded
    assert "typer._adapters" not in loaded
    assert {name for name in loaded if name.startswith("service.cli.")} == {
        f"service.cli.{name}" for name in ("application", "console", "options", "questions", "reports", "tables")
    }


@pytest.mark.parametrize("words", [["--help"], ["estimate", "-h"], ["plan", "--help"], ["models", "-h"], ["ask", "-h"]])
def test_help_imports_no_estimator_and_no_library_of_tables(words: list[str]) -> None:
    loaded = _loaded_by(*words)
    assert not {"numpy", "pydantic", "rich", "service.catalogue", "service.estimator", "service.validation"} & loaded


def test_each_module_defines_the_commands_of_its_list() -> None:
    listed = {name: module for modules in COMMANDS.values() for module, names in modules.items() for name in names}
    for module in dict.fromkeys(listed.values()):
        app = import_module(f"service.cli.{module}").app
        found = [*(one.name or one.callback.__name__.replace("_", "-") for one in app.registered_commands)]
        found += [one.name for one in app.registered_groups]
        assert sorted(found) == sorted(name for name, of in listed.items() if of == module)


def test_an_unknown_option_names_the_nearest(run: Command) -> None:
    ran = run(*ASKED, "--tensr", "2")
    assert ran.code == 2
    assert "--tensor" in ran.err


@pytest.mark.parametrize(("command", "file"), [("write-formulas", "README.md"), ("write-openapi", "openapi.json")])
def test_an_installed_package_writes_no_generated_file(
    command: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("service.source_tree.ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["traincost", command])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        f"traincost: {file} is written in the source tree, and there is none around the package\n"
    )


def test_letters_that_a_terminal_lacks_end_no_command() -> None:
    environment = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONPATH": str(ROOT)}
    for words, code in ((["export", "sbatch", *ASKED, "--command", "tr\u00e4n.py"], 0), (["models", "tr\u00e4n"], 2)):
        command = [sys.executable, "-m", "service", *words]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (ran.returncode, "Traceback" in ran.stderr) == (code, False)
        assert "n.py" in ran.stdout or "no models with" in ran.stderr


def test_it_needs_no_database_and_no_home(tmp_path: Path) -> None:
    environment = {
        "TRAINCOST_DATABASE_URL": "postgresql://nobody@192.0.2.1/none",
        "HOME": "/proc",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "service", "estimate", *ASKED]
    ran = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "8,030,261,248" in ran.stdout
    assert not list(tmp_path.iterdir())
