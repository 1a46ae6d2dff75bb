"""Commands on files: of launchers and frameworks, messages and traces; and launch checks, which a service answers."""

from pathlib import Path
from typing import Annotated

import typer

from service.cli import console
from service.cli.options import Extra, File, Form, Request, Words, command

app = console.CommandGroup()


def _targets(incomplete: str) -> list[str]:
    from service.formats.targets import TARGETS

    return [name for name in TARGETS if name.startswith(incomplete)]


Target = Annotated[str, typer.Argument(help="Launcher or framework.", autocompletion=_targets)]
EXPORT = Form(
    examples=(
        "traincost export megatron-lm llama-3.1-8b --seq 8192 --gbs 512 --gpu h100 --gpus 64 --tp 2",
        "traincost export sbatch question.json --command 'train.py --lr 1e-4' > train.sbatch",
        "traincost export torchtitan question.yaml --json",
    ),
    extras=(
        Extra("format_version", "version", "text", "Form of the tool's file; the newest where absent"),
        Extra("command", "command", "text", "Command for a launcher to start"),
        Extra("allow_loss", "allow_loss", "truth", "Write it though it changes the job by more than 5 %"),
    ),
)


@app.command("export", cls=command(EXPORT))
def export_question(
    context: typer.Context,
    target: Target,
    words: Words = None,
    *,
    file: File = None,
    as_json: console.AsJson = False,
) -> None:
    """Write a question as a tool's own file. What the file cannot express is listed in it and on stderr."""
    from service.catalogue import shipped_catalogue
    from service.features.exports.exports import export, target_named

    tool, request = target_named(target), Request(context, words, file)
    version, to_run, allow_loss = (request.body.pop(name, None) for name in ("version", "command", "allow_loss"))
    if version is not None and version not in tool.versions:
        raise typer.BadParameter(f"{target} has the versions {', '.join(tool.versions)}", param_hint="--format-version")
    with request.refusals():
        written = export(
            request.body,
            shipped_catalogue(),
            tool,
            version or next(iter(tool.versions)),
            to_run,
            allow_loss=bool(allow_loss),
        )
    console.print_answer(written, lambda one: one.content.rstrip("\n"), as_json=as_json)
    if not as_json:
        for one in written.not_expressible:
            typer.echo(f"not in the file: {one.field}: {one.message}; {one.fix}", err=True)


FormatName = Annotated[str | None, typer.Option("--format", help="Kind of file; recognised where absent.")]
Launcher = Annotated[str, typer.Argument(help="File of a launcher or framework; - for standard input.")]


@app.command("import")
def import_launcher(file: Launcher, *, kind: FormatName = None, as_json: console.AsJson = False) -> None:
    """Read the file of a launcher or framework: its model, recipe and layout as a question, ready for a pipe.

    traincost import train.sh | traincost estimate - --gpu h100 --gpus 64
    """
    from service.features.exports.exports import import_file
    from service.validation.json_text import text_in
    from service.validation.reading import to_wire

    imported = import_file(kind, text_in(file))
    if as_json:
        console.print_answer(imported, str, as_json=True)
        return
    import json

    wire = to_wire(imported)
    question = {name: wire[name] for name in ("model", "recipe", "layout") if wire.get(name)}
    typer.echo(json.dumps(question, indent=2, ensure_ascii=False))
    notes = [f"recognised as {imported.format}", *imported.assumptions]
    notes += [f"line {one.line}: {one.name} is not understood: {one.why}" for one in imported.not_understood]
    notes += [f"line {one.line}: {one.name} is unknown" for one in imported.unknown]
    for note in notes:
        typer.echo(note, err=True)


@app.command()
def diagnose(
    file: console.Body,
    message: Annotated[str | None, typer.Argument(help="File that holds the message; else the body holds it.")] = None,
    *,
    as_json: console.AsJson = False,
) -> None:
    """Diagnose an out-of-memory error, with changes that help. The answer of POST /v1/diagnose."""
    from service.catalogue import shipped_catalogue
    from service.cli.reports import diagnosis_report
    from service.features.diagnose.diagnose import diagnose as diagnosis_of
    from service.validation.json_text import body_in, text_in

    text = {} if message is None else {"message": text_in(message)}
    diagnosis = diagnosis_of({**body_in(file), **text}, shipped_catalogue())
    console.print_answer(diagnosis, diagnosis_report, as_json=as_json)


@app.command()
def profile(
    trace: Annotated[str, typer.Argument(help="Trace of torch.profiler, .json or .json.gz; - for standard input.")],
    question: Annotated[
        str | None, typer.Argument(help="JSON file with the question that it is compared with.")
    ] = None,
    *,
    records: Annotated[
        Path | None, typer.Option(help="File to write the matrix products to, for measurements.")
    ] = None,
    as_json: console.AsJson = False,
) -> None:
    """Show where the time of a training step goes, beside its prediction. The answer of POST /v1/profiles."""
    from service.calibration.traces import MOST_BYTES
    from service.catalogue import shipped_catalogue
    from service.cli.reports import profile_report
    from service.features.profiles.profiles import profile as profile_of
    from service.validation.json_text import body_in, bytes_in
    from service.validation.reading import to_bytes

    body = None if question is None else body_in(question)
    result = profile_of(bytes_in(trace, MOST_BYTES), body, shipped_catalogue(), has_records=records is not None)
    if records is not None:
        records.write_bytes(to_bytes({"records": result.records}))
    console.print_answer(result, profile_report, as_json=as_json)


NoWait = Annotated[bool, typer.Option("--no-wait", help="Print the queued launch check, and do not wait.")]


@app.command("launch-check")
def launch_check(
    file: console.Body,
    *,
    no_wait: NoWait = False,
    url: console.Url = "http://localhost:8000",
    key: console.Key = None,
    as_json: console.AsJson = False,
    as_csv: console.AsCsv = False,
) -> None:
    """Measure parts of a job on a worker before it starts; the exit code of a no-go is 1."""
    import sys

    from service.cli.reports import describe_event, launch_check_csv, launch_check_report
    from service.client.sending import Event
    from service.validation.json_text import body_in

    with console.Progress() as progress, console.connected(url, key) as client:

        def report(event: Event) -> None:
            lines, share = describe_event(event.name, event.data)
            if sys.stderr.isatty():
                progress.report(", ".join(lines), share, share)
                return
            for line in lines:
                typer.echo(line, err=True)

        created = client.launch_checks.create(body_in(file))
        check = created if no_wait else client.launch_checks.wait(created.id, report)
    console.print_answer(check, launch_check_report, as_json=as_json, as_csv=as_csv, csv=launch_check_csv)
    if check.verdict == "no-go":
        raise typer.Exit(1)
