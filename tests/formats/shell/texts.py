"""Shell texts of every kind: made from a grammar, and public scripts that are cut, doubled and mixed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

PUBLIC = tuple(
    path.read_text(encoding="utf-8")
    for path in sorted((Path(__file__).parent / "public").glob("*.s*"))
    if path.is_file()
)
"""Texts of public scripts."""

DEEPEST = 5
MOST_MUTATIONS = 6
LONGEST_PIECE = 200

_NAMES = ("A", "TP", "ARGS", "X_1", "SLURM_NNODES", "1", "@", "*", "#", "?", "HOME")
_WORDS = (
    "--tensor-model-parallel-size", "--bf16", "8", "x y", "a.py", "train", "--", "-m", "0x1F", "é\u2028", "[ab]*", "",
    "~",
)  # fmt: skip
_SIGNS = (
    "'", '"', "`", "$", "$(", "${", "$((", "))", "<<E\n", "<<'E'\n", "E\n", "<<<", "&&", "||", ";;", ";", "\\", "\n",
    "#", "(", ")", "{", "}", "[[", "]]", "\t", "\r\n", "\0", "\U000f0000", "if ", "fi\n", "do ", "done\n", "case x in ",
    "esac\n", ">&", "2>&1", "|&", "<(", "=(", "+=", "!", "9" * 70,
)  # fmt: skip
_OPERATORS = (":-", "-", ":=", "+", ":?", "%", "%%", "##", "/", "//", "^^", ",,", ":", "@Q", "[@]", "[1]", "[$A]")
_TESTS = ("-z", "-n", "-f", "!", "-eq", "==", "=~", "<", "-a", "(", ")", "8", "$A", '"$TP"', "a*")
_PROGRAMS = (
    "torchrun", "srun", "python -m", "accelerate launch", "deepspeed", "bash -c", "sbatch", "env A=1", "eval", ".",
    "exec", "tune run", "litgpt", "llamafactory-cli train", "trl sft", "ssh h", "set --", "shift", "read",
    "printf -v", "unset", "cat >f.yaml", "tee f.yaml", "echo", "pretrain_gpt.py", "run_train.py --config-file f.yaml",
)  # fmt: skip


def word(random: Random, depth: int) -> str:
    """A word with quotes and expansions."""
    return "".join(random.choice(_PARTS)(random, depth + 1) for _ in range(random.choice((1, 1, 1, 2, 3))))


def _plain(random: Random, _: int) -> str:
    return random.choice(_WORDS) if random.random() < 0.7 else random.choice(_SIGNS)


def _quoted(random: Random, depth: int) -> str:
    inner = _plain(random, depth) if depth > DEEPEST else f"{word(random, depth)} {word(random, depth)}"
    return random.choice(('"{}"', "'{}'", "$'{}'", "`{}`")).format(inner)


def _expansion(random: Random, depth: int) -> str:
    name = random.choice(_NAMES)
    if random.random() < 0.5 or depth > DEEPEST:
        return random.choice(("${}", "${{{}}}", "${{{}[@]}}", "${{#{}}}", "${{!{}}}")).format(name)
    return f"${{{name}{random.choice(_OPERATORS)}{word(random, depth)}}}"


def _substitution(random: Random, depth: int) -> str:
    inner = command(random, depth + 1) if depth < DEEPEST else "ls"
    return random.choice(("$({})", "$(cat <<E\n{}\nE\n)", "<({})", "$(({}))")).format(inner)


_PARTS: tuple[Callable[[Random, int], str], ...] = (
    _plain,
    _plain,
    _plain,
    _quoted,
    _expansion,
    _expansion,
    _substitution,
)


def command(random: Random, depth: int = 0) -> str:
    """A command, simple or compound."""
    if depth > DEEPEST:
        return word(random, depth)
    return random.choice(_COMMANDS)(random, depth + 1)


def _simple(random: Random, depth: int) -> str:
    words = [word(random, depth) for _ in range(random.randrange(6))]
    return " ".join(
        [random.choice((*_PROGRAMS, "")), *words, *random.choices(("2>&1", "> f.yaml", "| tee x", "&"), k=1)]
    )


def _assigned(random: Random, depth: int) -> str:
    name, value = random.choice(_NAMES), word(random, depth)
    forms = ("{}={}", "{}+={}", "export {}={}", "{}=({})", "{}+=({})", "local {}={}", "{}[1]={}", "(({}={}))")
    return random.choice(forms).format(name, value)


def _condition(random: Random, _: int) -> str:
    inner = " ".join(random.choices(_TESTS, k=random.randrange(6)))
    return random.choice(("[ {} ]", "[[ {} ]]", "test {}", "(( {} ))")).format(inner)


def _branches(random: Random, depth: int) -> str:
    parts = [command(random, depth) for _ in range(3)]
    forms = (
        "if {};\nthen {}\nelse {}\nfi", "{} && {} || {}", "case {} in a) {};; *) {};; esac", "{{ {}; {}; {}; }}",
        "for A in {}; do {}; {}; done", "while {}; do {}; {}; done", "f() {{ {}; }}\nf {}\n{}", "({}; {}) | {}",
    )  # fmt: skip
    return random.choice(forms).format(*parts)


_COMMANDS: tuple[Callable[[Random, int], str], ...] = (_simple, _simple, _assigned, _condition, _branches, _branches)


def made(random: Random) -> str:
    """A text of some commands."""
    return "\n".join(command(random) for _ in range(random.randrange(1, 12)))


def changed(random: Random) -> str:
    """A public script with parts of it removed, doubled, moved, or with signs put in."""
    text = random.choice(PUBLIC)
    for _ in range(random.randrange(1, MOST_MUTATIONS)):
        at = random.randrange(len(text) + 1)
        piece = text[at : at + random.randrange(LONGEST_PIECE)]
        kind = random.randrange(5)
        if kind == 0:
            text = text[:at] + text[at + len(piece) :]
        elif kind == 1:
            text = text[:at] + piece * random.randrange(1, 5) + text[at:]
        elif kind == 2:
            text = text[:at] + random.choice(_SIGNS) + text[at:]
        elif kind == 3:
            text = text[:at] + command(random) + text[at:]
        else:
            other = random.choice(PUBLIC)
            text = text[:at] + other[random.randrange(len(other)) :][: 10 * LONGEST_PIECE] + text[at:]
    return text


def texts(seed: int) -> Iterator[str]:
    """Texts without end."""
    random = Random(seed)  # noqa: S311 - a choice of texts, no secret
    while True:
        yield made(random) if random.random() < 0.5 else changed(random)
