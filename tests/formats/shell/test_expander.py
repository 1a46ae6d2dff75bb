"""What a script starts, compared with what bash makes of the same words, and what is not known."""

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from service.errors import Refused
from service.formats.shell.expander import expanded

CASES = tomllib.loads(Path(__file__).with_name("cases.toml").read_text(encoding="utf-8"))["case"]
WORDS = 'words() { printf "<%s>\\0" "$@"; }\n'


def words_of(script: str, arguments: tuple[str, ...] | None = None) -> list[str]:
    """Words of the last command, with names in place of what is not known."""
    found = expanded(script, {}, arguments)
    return [found.spelled(word.plain) for word in found.commands[-1].words]


def unknown_of(script: str) -> tuple[str, int]:
    """Name and line of the first unknown word of the last command."""
    found = expanded(script, {}, None)
    unknown = next(one for word in found.commands[-1].words if (one := found.unknown_in(word.plain)))
    return unknown.name, unknown.place.line


@pytest.mark.parametrize("case", CASES, ids=[case["script"][:40] for case in CASES])
def test_words_are_those_of_bash(case: dict[str, str]) -> None:
    bash = shutil.which("bash")
    assert bash
    done = subprocess.run(
        [bash, "--norc", "-c", WORDS + case["script"]], env={"PATH": "/usr/bin:/bin"}, capture_output=True, check=False
    )
    printed = [one[1:-1] for one in done.stdout.decode().split("\0")[:-1]]
    assert printed
    assert words_of(case["script"])[1:] == printed


@pytest.mark.parametrize(
    ("script", "name", "line"),
    [
        ("A=1\nrun $A $TP", "$TP", 2),
        ("A=$TP\n\nrun --tp ${A}", "$TP", 1),
        ("A=$(nproc)\nrun $A", "$(nproc ...)", 1),
        ("A=`nproc`\nrun $A", "`...`", 1),
        ("A=$((N * 2))\nrun $A", "$N", 1),
        ("if test -f x; then\n A=1\nelse\n A=2\nfi\nrun $A", "$A", 1),
        ("run $1", "$1", 1),
        ("run ${SLURM_NNODES:-1}", "$SLURM_NNODES", 1),
        (". ./settings\nrun ${TP:-1}", "$TP", 2),
        ("while check; do\nA+=x\ndone\nrun $A", "$A", 1),
        ("read -r A B\nrun $B", "$B", 1),
        ("run ${X[$Y]}", "${X[$Y]}", 1),
        ("run ${!A}", "${!A}", 1),
        ("run <(ls)", "<(...)", 1),
        ("run {1..8}", "{1..8}", 1),
        ("bash -c 'cd x\nrun $TP'", "$TP", 2),
        ("cat > f.sh <<EOF\nrun \\$TP\nEOF\nsrun bash f.sh", "$TP", 2),
    ],
)  # fmt: skip
def test_what_is_not_known_has_a_name_and_a_line(script: str, name: str, line: int) -> None:
    assert unknown_of(script) == (name, line)


def test_branches_keep_what_they_have_in_common() -> None:
    found = expanded("A=(--a 1)\nif test -f x; then A+=(--b 2); else A+=(--b 3 --c); fi\nrun ${A[@]} --d", {}, None)
    *start, held, end = found.commands[-1].words
    assert [word.plain for word in (*start, end)] == ["run", "--a", "1", "--b", "--d"]
    choices = found.choices_of(held.plain)
    assert [[word.plain for word in words] for words in choices] == [["2"], ["3", "--c"]]


def test_a_branch_that_leaves_the_script_leaves_no_value() -> None:
    assert words_of("TP=2\nif [ ! -f x ]; then TP=3; exit 1; fi\ncheck || { TP=4; exit; }\nrun $TP") == ["run", "2"]


def test_a_variable_that_is_supposed_to_be_unset_does_not_end_the_script() -> None:
    assert words_of('[ -z "$A" ] && echo A && exit 1\nif [ -z "$B" ]; then B=2; exit 1; fi\nrun') == ["run"]
    assert words_of('if [ -z "$B" ]; then B=2; fi\nrun $B') == ["run", "2"]
    assert words_of('M=\nwhile [ $# -gt 0 ]; do M=$1; shift; done\nif [ -z "$M" ]; then exit 1; fi\nrun') == ["run"]


def test_a_variable_that_is_read_under_a_sign_breaks_nothing() -> None:
    assert words_of("read '*'\n(( 2 * x++ ))\nrun 1") == ["run", "1"]


def test_arguments_of_the_job_are_known() -> None:
    script = "while [ $# -gt 0 ]; do case $1 in --tp) TP=$2; shift 2;; *) shift;; esac; done; run ${TP:-1}"
    assert words_of(script, ("x", "--tp", "4")) == ["run", "4"]
    assert words_of(script, ()) == ["run", "1"]
    assert words_of(script, None) == ["run", "1"]


def commands(script: str) -> list[list[str]]:
    return [
        [found.spelled(word.plain) for word in one.words]
        for found in [expanded(script, {}, None)]
        for one in found.commands
    ]


@pytest.mark.parametrize(
    "around",
    [
        "srun --container-image=x.sqsh bash -c '{}'",
        "bash -lc \"{}\"",
        "sbatch <<EOF\n#!/bin/bash\nsrun {}\nEOF",
        "echo 'srun {}' | bash",
        "cat <<'EOF' | sbatch -N 2\n{}\nEOF",
        "CMD='{}'\nsrun $CMD",
        "CMD='{}'\neval \"$CMD\"",
        "(cd x && {}) 2>&1 | tee log &",
        "docker run --gpus all image bash -c '{}'",
        "apptainer exec --nv x.sif {}",
        "env A=b numactl -l {}",
        "time nohup {} > log",
        "if check; then {}; fi",
        "for node in $NODES; do ssh $node '{}'; done",
        "f() {{ {}; }}\nf",
        "exec {}",
        "cat > run.sh <<EOF\n{}\nEOF\nchmod +x run.sh\nsrun ./run.sh",
        "printf '%s' x | {}",
    ],
)  # fmt: skip
def test_a_command_is_found_wherever_it_stands(around: str) -> None:
    command = "torchrun train.py --a 1"
    found = commands(around.format(command))
    assert any(words[-4:] == command.split() for words in found), found


@pytest.mark.parametrize(
    ("script", "code", "line", "column"),
    [
        ("a\nb 'c", "not_closed", 2, 3),
        ("a \"$(b", "not_closed", 1, 3),
        ("if a; then b", "not_shell", 1, 13),
        ("a\n)", "not_shell", 2, 1),
        ("A=(a", "not_closed", 1, 3),
        ("a && && b", "not_shell", 1, 6),
        ("[[ a", "not_closed", 1, 1),
        ("(" * 40 + "a", "too_deep", 1, 35),
        ("${a:-" * 40, "too_deep", 1, None),
        ("a\n" * 16385, "too_long", 8193, 1),
        ("f() { f; f; }\nf", "too_deep", 1, None),
        ("A=aaaaaaaa\n" + "A=$A$A$A$A\n" * 20, "too_long", None, None),
        ("a \U000f0000", "not_text", 1, 3),
        ("cat <<A" * 300, "too_long", None, None),
    ],
)  # fmt: skip
def test_what_is_no_script_or_too_much_is_refused(script: str, code: str, line: int | None, column: int | None) -> None:
    with pytest.raises(Refused) as caught:
        expanded(script, {}, None)
    (problem,) = caught.value.problems
    assert problem.code == code
    if line is not None:
        assert problem.message.startswith(f"line {line}, column {column or ''}")


def test_files_are_those_that_the_script_writes() -> None:
    found = expanded(
        "D=x\ncat > $D/a.yaml <<EOF\na: $D\nb: $Q\nEOF\necho c: 1 >> x/a.yaml\ntee b <<'E'\n$D\nE\n", {}, None
    )
    assert {name: found.spelled(text.plain) for name, text in found.files.items()} == {
        "x/a.yaml": "a: x\nb: $Q\nc: 1\n",
        "b": "$D\n",
    }


@pytest.mark.parametrize(
    "loop",
    [
        "while [[ \"$1\" != '' ]]; do case $1 in -m) shift; M=$1;; esac; shift; done",
        'while [ $# -gt 0 ]; do case "$1" in --m) M="$2"; shift 2;; esac; done',
        "while (( $# )); do M=$1; shift; done",
        "while getopts 'm:' name; do M=$OPTARG; done",
        'until [ -z "$1" ]; do M=$1; shift; done',
    ],
)
def test_a_loop_over_arguments_that_are_not_known_takes_none(loop: str) -> None:
    script = f"M=base\n{loop}\nrun $M"
    assert words_of(script) == ["run", "base"]
    assert "@" in expanded(script, {}, None).unset
    assert words_of(script, ()) == ["run", "base"] or "getopts" in loop
