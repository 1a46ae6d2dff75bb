"""Completion in bash: commands, options and names of the catalogue, by the script that the command prints."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.commands import write_program

WORDS = {
    "keys l": {"list", "limit"},
    "estimate --sequence-p": {"--sequence-parallel"},
    "plan llama-3.1-8b --gpu h100-s": {"h100-sxm5-80gb"},
    "memory llama-3.1-8b --recompute ": {"none", "selective", "full"},
    "plan --obj": {"--objective"},
}

SCRIPT = """
source <(_TRAINCOST_COMPLETE=source_bash traincost)
name=$(complete -p traincost | sed 's/.*-F \\([^ ]*\\).*/\\1/')
while IFS= read -r line; do
    read -ra COMP_WORDS <<< "traincost $line"
    [[ $line == *' ' ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
    $name traincost
    echo "${COMPREPLY[*]}"
done
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_offers_what_may_stand_there(tmp_path: Path) -> None:
    environment = {
        "PATH": f"{write_program(tmp_path)}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "LC_ALL": "C",
    }
    done = subprocess.run(
        ["bash", "-c", SCRIPT],
        env=environment,
        input="\n".join([*WORDS, ""]),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert dict(zip(WORDS, map(set, map(str.split, done.stdout.splitlines())), strict=True)) == WORDS
