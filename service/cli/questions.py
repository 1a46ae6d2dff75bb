"""Commands that answer questions here, with the same options for the fields of a question."""

from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli import console
from service.cli.options import (
    Extra,
    FailIfOom,
    File,
    Form,
    Request,
    Texts,
    Words,
    changed,
    combinations,
    command,
    fail_if,
    first_of,
    part_of,
    repeated,
    values_of,
)
from service.errors import Problem, Refused

app = console.CommandGroup()

JOB = "llama-3.1-8b --seq 8192 --gpu h100 --gpus 8"

DAYS = Extra("max_days", "limits.days", "number", "Longest wall time of the run, e.g. 14d")
COST = Extra("max_cost_usd", "limits.cost_usd", "number", "Highest cost of the run")
HEADROOM = Extra("headroom_fraction", "limits.headroom_fraction", "number", "Share of the memory that stays free")


ESTIMATE = Form(
    examples=(
        f"traincost estimate {JOB} --tp 2",
        f"traincost estimate {JOB} --gbs 512 --training-tokens 200B --usd-per-gpu-hour 2.5",
        "traincost estimate question.yaml --gpus 16 --json",
    )
)


@app.command(cls=command(ESTIMATE))
def estimate(
    context: typer.Context,
    words: Words = None,
    *,
    file: File = None,
    as_json: console.AsJson = False,
    fail_if_oom: FailIfOom = False,
) -> None:
    """Estimate a training job. Needs no server and no database; repeat an option for a list."""
    from service.catalogue import shipped_catalogue
    from service.cli.reports import report
    from service.features.estimates.answers import answer
    from service.features.estimates.planned import planned
    from service.validation.questions import read_question

    request, catalogue = Request(context, words, file), shipped_catalogue()
    with request.refusals():
        result = answer(read_question(request.body, catalogue, planner=planned), catalogue)
    console.print_answer(result, report, as_json=as_json)
    fail_if(result.verdict, is_asked=fail_if_oom)


MEMORY = Form(
    examples=(
        f"traincost memory {JOB} --mbs 2 --recompute selective",
        f"traincost memory {JOB} --fail-if-oom && sbatch train.sbatch",
        "traincost memory - < question.json",
    )
)


@app.command(cls=command(MEMORY))
def memory(
    context: typer.Context,
    words: Words = None,
    *,
    file: File = None,
    as_json: console.AsJson = False,
    fail_if_oom: FailIfOom = False,
) -> None:
    """Work out the memory of a job, and what to change where it does not fit. The answer of POST /v1/memory."""
    from service.catalogue import shipped_catalogue
    from service.cli.reports import memory_report
    from service.features.estimates.answers import memory_answer
    from service.features.estimates.planned import planned
    from service.validation.questions import read_question

    request, catalogue = Request(context, words, file), shipped_catalogue()
    with request.refusals():
        result = memory_answer(read_question(request.body, catalogue, planner=planned), catalogue)
    console.print_answer(result, memory_report, as_json=as_json)
    fail_if(result.verdict, is_asked=fail_if_oom)


CHECK = Form(
    examples=(
        f"traincost check {JOB} --max-days 30 --training-tokens 200B",
        "traincost check --launch train.sh --gpu h100 --gpus 64",
        "traincost check question.json && sbatch train.sbatch",
    ),
    extras=(
        DAYS,
        COST,
        Extra("deadline_seconds", "deadline_seconds", "number", "Time for the search of alternatives"),
    ),
)
LaunchFile = Annotated[str | None, typer.Option("--launch", help="Launcher's file, which fills in what is left out.")]


@app.command(cls=command(CHECK))
def check(
    context: typer.Context,
    words: Words = None,
    *,
    file: File = None,
    launch: LaunchFile = None,
    as_json: console.AsJson = False,
    fail_if_oom: FailIfOom = False,
) -> None:
    """Check whether a job may start: ok, warn, deny or unknown, with the reason. The exit code of deny is 1."""
    from service.catalogue import shipped_catalogue
    from service.cli.reports import check_report
    from service.features.checks.check import check as checked
    from service.features.exports.exports import import_file
    from service.validation.json_text import text_in

    request = Request(context, words, file)
    if launch is not None:
        content = text_in(launch)
        request.body["launch"] = {"format": import_file(None, content).format, "content": content}
    with request.refusals():
        result = checked(request.body, shipped_catalogue())
    console.print_answer(result, check_report, as_json=as_json)
    fail_if(
        "out_of_memory" if result.verdict == "deny" and result.oom_probability_fraction > 0.5 else None,
        is_asked=fail_if_oom,
    )
    if result.verdict == "deny":
        raise typer.Exit(1)


def _plan_body(body: dict[str, Any], texts: Texts) -> dict[str, Any]:
    """The body of a search: repeated fields of the search are restricted to their values."""
    from service.validation.open_fields import SEARCHED

    several = repeated(texts)
    searched = {name: one for name, one in several.items() if one.path[1] in SEARCHED.get(one.path[0], ((), ()))[1]}
    clusters = combinations("cluster", texts, body)
    rest = {name: given for name, given in texts.items() if len(clusters) < 2 or part_of(name) != "cluster"}
    result = changed(body, first_of(rest, searched))
    for name, field in searched.items():
        path, values = values_of(field, texts[name])
        result[path[0]] = {**result[path[0]], path[1]: values}
    if len(clusters) > 1:
        result.pop("cluster", None)
        result["clusters"] = clusters
    most = result.pop(MOST_GPUS, None)
    if most is not None:
        cluster = result.get("cluster")
        fewest = cluster.get("gpus") if isinstance(cluster, Mapping) else None
        result["limits"] = {**(result.get("limits") or {}), "gpus": [fewest or 1, most]}
    return result


MOST_GPUS = "max_gpus"

PLAN = Form(
    examples=(
        "traincost plan llama-3.1-70b --seq 8192 --gbs 1024 --gpu h100 --gpus 64",
        "traincost plan llama-3.1-70b --seq 8k --gbs 1024 --gpu h100 --gpus 64 --max-gpus 512 --training-tokens 1T "
        "--usd-per-gpu-hour 2.5 --objective cost --max-days 60",
        "traincost plan question.json --tp 4 --tp 8 --recompute none --top 3",
    ),
    extras=(
        Extra("objective", "objective", "text", "Least of: time (the default), cost, gpus or energy"),
        DAYS,
        COST,
        HEADROOM,
        Extra(MOST_GPUS, MOST_GPUS, "integer", "Plan on more GPUs, too, up to this number"),
        Extra("top", "top", "integer", "How many plans; 10 where absent"),
    ),
    body=_plan_body,
)


@app.command(cls=command(PLAN))
def plan(
    context: typer.Context,
    words: Words = None,
    *,
    file: File = None,
    as_json: console.AsJson = False,
    as_csv: console.AsCsv = False,
    fail_if_oom: FailIfOom = False,
) -> None:
    """Search the best layouts of a job. What you give of the layout is fixed; repeat an option to allow several values.

    The answer of POST /v1/plans; a long search prints its progress on stderr.
    """
    from service.answers.plans import PlanAnswer
    from service.catalogue import shipped_catalogue
    from service.cli.reports import describe_counts, plans_csv, plans_report
    from service.features.plans.search_plans import search

    request, shares = Request(context, words, file), [0.0]
    with console.Progress() as progress, request.refusals():
        for step in search(request.body, shipped_catalogue(), shares.append):
            if isinstance(step, PlanAnswer):
                answer = step
            else:
                progress.report(f"so far {describe_counts(step)}", step.generated, shares[-1], "layouts")
    console.print_answer(answer, plans_report, as_json=as_json, as_csv=as_csv, csv=plans_csv)
    fits = answer.plans or answer.counts.fitting
    fail_if(None if fits else "out_of_memory", is_asked=fail_if_oom)


def _listed(body: dict[str, Any], texts: Texts) -> dict[str, Any]:
    """The body of a comparison: clusters and prices in every combination of their values."""
    question = dict(body.get("question") or {})
    result = {**body, "question": changed(question, {n: t for n, t in texts.items() if part_of(n) not in LISTS})}
    for part, many in LISTS.items():
        items = combinations(part, texts, question)
        if items:
            result[many] = items
            result["question"].pop(part, None)
    return result


LISTS = {"cluster": "clusters", "price": "prices"}


def _solve_body(body: dict[str, Any], texts: Texts) -> dict[str, Any]:
    from service.validation.flat import ALIASES, flat_fields

    unknown = str(body.get("unknown", "")).replace("-", "_")
    field = flat_fields().get(ALIASES.get(unknown, unknown))
    if field is not None and field.path[-1] != "preset":
        body = {**body, "unknown": ".".join(field.path)}
    if unknown == "cluster":
        return _listed(body, texts)
    return {**body, "question": changed(dict(body.get("question") or {}), texts)}


SOLVE = Form(
    examples=(
        f"traincost solve --unknown micro-batch {JOB}",
        "traincost solve --unknown gpus llama-3.1-70b --seq 8192 --gbs 1024 --gpu h100 --zero-stage 3",
        "traincost solve --unknown training-tokens question.json --max-cost-usd 1e6",
    ),
    extras=(
        Extra("unknown", "unknown", "text", "Open field: micro-batch, sequence-length, gpus, ..."),
        Extra("multiple_of", "multiple_of", "integer", "The value is a multiple of this"),
        DAYS,
        COST,
        Extra("max_gpu_hours", "limits.gpu_hours", "number", "Most GPU-hours of the run"),
        HEADROOM,
        Extra("max_total_flop", "limits.total_flop", "number", "FLOP of the run, for --unknown model"),
        Extra("limit_end", "limits.end", "text", "value or high: the end of intervals that meets the limits"),
    ),
    body=_solve_body,
    is_inside=True,
)


@app.command(cls=command(SOLVE))
def solve(
    context: typer.Context,
    words: Words = None,
    *,
    file: File = None,
    as_json: console.AsJson = False,
    fail_if_oom: FailIfOom = False,
) -> None:
    """Solve for an open field: the value that suffices, and the next that does not. The answer of POST /v1/solve."""
    from service.catalogue import shipped_catalogue
    from service.cli.reports import solution_report
    from service.features.solve.solve import solve as solution_of

    request = Request(context, words, file)
    with request.refusals():
        solution = solution_of(request.body, shipped_catalogue())
    console.print_answer(solution, solution_report, as_json=as_json)
    fail_if(None if solution.value is not None else "out_of_memory", is_asked=fail_if_oom)


COMPARE = Form(
    examples=(
        "traincost compare llama-3.1-8b --seq 8192 --gpu h100 --gpu a100 --gpus 8 --gpus 64",
        f"traincost compare {JOB} --training-tokens 200B --provider '*' --region '*'",
        "traincost compare question.json --gpus 64 --gpus 128 --columns days --columns cost_usd",
    ),
    extras=(
        Extra("pair", "pair", "text", "product: all combinations; zip: the first cluster at the first price"),
        Extra("sort_by", "sort_by", "text", "Number to sort by; cost_usd, else gpu_hours or step_seconds"),
        Extra("descending", "descending", "truth", "true for the largest first"),
        Extra("columns", "columns", "text", "Number of each row, as cells name it; repeat it", is_list=True),
    ),
    body=_listed,
    is_inside=True,
)


@app.command(cls=command(COMPARE))
def compare(
    context: typer.Context,
    words: Words = None,
    *,
    file: File = None,
    as_json: console.AsJson = False,
    as_csv: console.AsCsv = False,
) -> None:
    """Compare clusters and prices for a job. Repeat their options: all combinations are compared."""
    from service.catalogue import shipped_catalogue
    from service.cli.reports import comparison_report
    from service.features.compare.compare import MetricTable
    from service.features.compare.compare import compare as comparison_of

    request = Request(context, words, file)
    with request.refusals():
        result = comparison_of(request.body, shipped_catalogue())
    console.print_answer(
        result, comparison_report, as_json=as_json, as_csv=as_csv, csv=MetricTable.csv, json_form=attrgetter("answer")
    )


def _vary_body(body: dict[str, Any], texts: Texts) -> dict[str, Any]:
    """The body of a table: each field with several values is varied from the first one."""
    several = repeated(texts)
    result = {**body, "question": changed(dict(body.get("question") or {}), first_of(texts, several))}
    first = 0 if body.get("mode") == "grid" else 1
    varied = {".".join(path): values[first:] for path, values in (values_of(several[n], texts[n]) for n in several)}
    if not varied and not body.get("vary"):
        message = "no field is varied, because no option is repeated"
        fix = "repeat one, e.g. --micro-batch 1 --micro-batch 2 --micro-batch 4; the first value is the base"
        raise Refused(Problem("", "required", message, fix))
    return {**result, "vary": {**body.get("vary", {}), **varied}}


SENSITIVITY = Form(
    examples=(
        f"traincost sensitivity {JOB} --mbs 1 --mbs 2 --mbs 4 --recompute none --recompute full",
        f"traincost sensitivity {JOB} --tp 1 --tp 2 --pp 1 --pp 2 --mode grid",
        "traincost sensitivity question.json --seq 4096 --seq 8192 --seq 16384",
    ),
    extras=(
        Extra("mode", "mode", "text", "one_at_a_time: each value alone; grid: all combinations"),
        Extra("metrics", "metrics", "text", "Number of each row, as cells name it; repeat it", is_list=True),
    ),
    body=_vary_body,
    is_inside=True,
)


@app.command(cls=command(SENSITIVITY))
def sensitivity(
    context: typer.Context,
    words: Words = None,
    *,
    file: File = None,
    as_json: console.AsJson = False,
    as_csv: console.AsCsv = False,
) -> None:
    """Vary fields: repeat an option; its first value is the base. The table of POST /v1/sensitivity."""
    from service.catalogue import shipped_catalogue
    from service.cli.reports import table_report
    from service.features.compare.compare import MetricTable
    from service.features.sensitivity.vary import vary

    request = Request(context, words, file)
    with request.refusals():
        varied = vary(request.body, shipped_catalogue())
    console.print_answer(
        varied, table_report, as_json=as_json, as_csv=as_csv, csv=MetricTable.csv, json_form=attrgetter("answer")
    )


def _sweep_body(body: dict[str, Any], texts: Texts) -> dict[str, Any]:
    """The body of a sweep: a list for each part of a question, in every combination of its values."""
    parts = dict.fromkeys(filter(None, map(part_of, texts)))
    return {**body, **{f"{part}s": [_plain(part, one) for one in combinations(part, texts, {})] for part in parts}}


def _plain(part: str, item: Any) -> Any:
    """A part without quantities and other names, which the lists of a sweep do not hold."""
    from service.validation.understanding import understood

    found = understood({part: item})
    return item if found is None or found.problems else found.body[part]


SWEEP = Form(
    examples=(
        "traincost sweep llama-3.1-8b --seq 8192 --gbs 512 --gpu h100 --gpu a100 --gpus 8 --gpus 64 --tp 1 --tp 2 "
        "--tp 4 --out rows.csv",
        "traincost sweep sweep.json --out rows.parquet",
    ),
    extras=(
        Extra("kind", "kind", "text", "estimate: each row an estimate; plan: the best plan of each"),
        Extra("columns", "columns", "text", "Number of each row, as cells name it; repeat it", is_list=True),
    ),
    body=_sweep_body,
)
Out = Annotated[Path, typer.Option(help="Table to write: a name that ends with .parquet or .csv.")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace the existing table.")]


@app.command(cls=command(SWEEP))
def sweep(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    words: Words = None,
    *,
    file: File = None,
    out: Out,
    replace: Replace = False,
    processes: Annotated[int | None, typer.Option(min=1, help="Processes; one a core where absent.")] = None,
    as_json: console.AsJson = False,
) -> None:
    """Write a table of every combination of repeated options, or of a file's lists. Run it again to continue."""
    from service.catalogue import shipped_catalogue
    from service.features.sweeps.rows import Counts
    from service.features.sweeps.schemas import read_sweep
    from service.features.sweeps.shards import TableExists, cores, run_locally

    if out.exists() and not replace:
        raise TableExists(f"{out} is there already; name another file, or say --replace")
    request = Request(context, words, file)
    with request.refusals():
        axes = read_sweep(request.body, shipped_catalogue())
    with console.Progress() as progress:

        def report(counts: Counts) -> None:
            whole = axes.axes.rows
            progress.report(f"{counts.rows:,} of {whole:,} rows", counts.rows, counts.rows / whole, "rows")

        counts = run_locally(axes, out, processes or cores(), report)
    console.print_answer(
        counts,
        lambda made: (
            f"{made.rows:,} rows in {out}: {made.answered:,} answered, {made.fitting:,} of them fit, "
            f"{made.refused:,} refused"
        ),
        as_json=as_json,
    )
