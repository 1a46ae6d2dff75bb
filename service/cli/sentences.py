"""The command that answers a sentence."""

from typing import TYPE_CHECKING, Annotated

import typer

from service.cli import console
from service.cli.tables import table

if TYPE_CHECKING:
    from service.answers.ask import LimitCheck, SentenceAnswer

app = console.CommandGroup()

STATES = {"understood": "Understood", "assumed": "Assumed", "not_understood": "Not understood"}


@app.command()
def ask(
    sentence: Annotated[list[str], typer.Argument(help="What is trained on what, as you would say it.")],
    *,
    as_json: console.AsJson = False,
) -> None:
    """Answer one sentence, e.g. traincost "llama 3.1 8b, 200B tokens, 64xH100, $2.50/h"; needs no server."""
    from service.catalogue import shipped_catalogue
    from service.features.ask.ask import ask as ask_sentence

    console.print_answer(ask_sentence(" ".join(sentence), shipped_catalogue()), sentence_report, as_json=as_json)


def sentence_report(answer: "SentenceAnswer") -> str:
    """What a sentence was understood as, above its answer."""
    from service.cli.reports import report

    rows = [
        [STATES[chip.state], chip.text, "" if chip.field is None else f"{chip.field} = {chip.value}", chip.note or ""]
        for chip in answer.chips
    ]
    limits = [f"{_limit(one)}: {one.verdict.replace('_', ' ')}" for one in answer.limits]
    return "\n".join([*table(rows, has_header=False), *limits, "", report(answer.answer)])


def _limit(one: "LimitCheck") -> str:
    return f"at most {one.days:,.6g} days" if one.days is not None else f"at most USD {one.cost_usd:,.6g}"
