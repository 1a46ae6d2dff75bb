"""The client: one method for each operation of the JSON API.

A question is what `POST /v1/estimates` takes, its parts dicts or dataclasses; an answer is the dataclass that the
service filled, so that a type checker and an editor have its fields.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from types import TracebackType
from typing import Any, Self

import httpx

from service.answers.ask import SentenceAnswer
from service.answers.checks import MOST_QUESTIONS, BatchKind, Check
from service.answers.diagnoses import Diagnosis, Reconciliation
from service.answers.estimates import Answer, FlopAnswer, GpuHoursAnswer, MemoryAnswer, MethodAnswer, TimelineAnswer
from service.answers.exports import Export, ExportTarget, Imported, ImportFormat
from service.answers.launch_checks import LaunchCheck
from service.answers.plans import PlanAnswer, PlanCounts, Solution
from service.answers.profiles import ProfileAnswer
from service.answers.rows import Cell, ComparisonAnswer, DifferenceAnswer, SensitivityAnswer
from service.answers.shares import ListedShare, Share
from service.answers.workers import SeenWorker
from service.client.lists import Collection, LaunchChecks, Listing, Sweeps, Value
from service.client.reading import Problem, Unreachable, Unreadable, encoded, from_json
from service.client.sending import (
    EVENT_STREAM,
    PATIENT,
    Event,
    Kind,
    Retries,
    Sender,
    Sent,
    connections,
    events_of,
    segment,
)
from service.estimator.question import Question, ToolName

Body = Mapping[str, Any] | Question
"""A request's body; values at any depth may be dataclasses, such as the `resolved` question of an answer."""

OCTETS = {"Content-Type": "application/octet-stream"}
PLAIN_TEXT = {"Content-Type": "text/plain; charset=utf-8"}


BatchAnswer = Answer | MemoryAnswer | FlopAnswer | GpuHoursAnswer | Check | Problem
"""Answer to one question of a batch; a problem is returned, not raised."""

ANSWERS: Mapping[BatchKind, type[Any]] = {
    "estimate": Answer,
    "memory": MemoryAnswer,
    "flops": FlopAnswer,
    "gpu-hours": GpuHoursAnswer,
    "check": Check,
}
"""Answer to each kind of question."""

MOST_BYTES = 1 << 20
"""Questions of one request, as JSON; the service takes some times as many bytes, and as many values as fill these."""

ANSWERED = 200


def requests_of(questions: Iterable[tuple[BatchKind, Any]]) -> Iterator[tuple[list[BatchKind], bytes]]:
    """Kinds of questions and the body of their request, as many to a request as the service takes."""
    kinds: list[BatchKind] = []
    contents: list[bytes] = []
    size = 0
    for kind, body in questions:
        content = encoded({"kind": kind, "body": body})
        if kinds and (len(kinds) == MOST_QUESTIONS or size + len(content) > MOST_BYTES):
            yield kinds, _batch_body(contents)
            kinds, contents, size = [], [], 0
        kinds.append(kind)
        contents.append(content)
        size += len(content)
    if kinds:
        yield kinds, _batch_body(contents)


def answers_of(kinds: list[BatchKind], document: Any) -> Iterator[BatchAnswer]:
    """The answers to a request, or problems, in order of its questions."""
    answers = document.get("answers", ()) if isinstance(document, dict) else ()
    if len(answers) != len(kinds):
        raise Unreadable(f"{len(kinds)} questions have {len(answers)} answers")
    for kind, answer in zip(kinds, answers, strict=True):
        status, body = answer["status"], answer["body"]
        yield from_json(ANSWERS[kind], body) if status == ANSWERED else Problem(status, body)


def _batch_body(contents: list[bytes]) -> bytes:
    return b'{"questions":[' + b",".join(contents) + b"]}"


class Client:
    """Client of one service; threads may share it.

    Args:
        url: address of the service, e.g. http://localhost:8000
        key: one that `traincost keys create` made; None where the service requires none
        timeout: longest wait for a connection, and for each next part of an answer [second]
        retries: how often and how long a request is repeated, where that does no harm
        transport: sends requests otherwise than over the network
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = 30.0,
        retries: Retries = PATIENT,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._sender = Sender(connections(url, key, timeout, transport), retries)
        self.models = Collection(self._sender, "/v1/models")
        self.gpus = Collection(self._sender, "/v1/gpus")
        self.clusters = Collection(self._sender, "/v1/clusters")
        self.prices = Collection(self._sender, "/v1/prices")
        self.rate_cards = Collection(self._sender, "/v1/rate-cards")
        self.regions = Collection(self._sender, "/v1/regions")
        self.scenarios = Collection(self._sender, "/v1/scenarios")
        self.sweeps = Sweeps(self._sender, "/v1/sweeps")
        self.launch_checks = LaunchChecks(self._sender, "/v1/launch-checks")
        self.revisions = Listing(self._sender, "/v1/catalogue/revisions")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._sender.http.close()

    def estimate(self, question: Body, *, explain: bool = False, rev: str | None = None) -> Answer:
        """Everything about one configuration.

        Args:
            question: model, recipe, layout, cluster and price
            explain: with the equation of each number, the numbers put in, and its inputs down to their sources
            rev: revision of the catalogue to answer under; None for that of now

        Returns:
            the answer
        """
        return self._post(Answer, "/v1/estimates", question, explain=explain or None, rev=rev)

    def ask(self, sentence: str, *, rev: str | None = None) -> SentenceAnswer:
        """The answer to one sentence, with what was understood of it.

        Args:
            sentence: what is trained on what, e.g. "llama 3.1 8b, 200B tokens, 64xH100, $2.50/h"
            rev: revision of the catalogue to answer under; None for that of now

        Returns:
            the chips, the question in plain JSON and its answer
        """
        return self._sender.answer(SentenceAnswer, Sent("GET", "/v1/ask", parameters=_given(q=sentence, rev=rev)))

    def memory(self, question: Body, *, explain: bool = False, rev: str | None = None) -> MemoryAnswer:
        """The verdict, and the bytes of every stage, by kind; arguments as in `estimate`."""
        return self._post(MemoryAnswer, "/v1/memory", question, explain=explain or None, rev=rev)

    def memory_by(self, method: ToolName, question: Body, *, rev: str | None = None) -> MethodAnswer:
        """Memory by another tool's method, beside our own estimate; other arguments as in `estimate`."""
        return self._post(MethodAnswer, "/v1/memory", question, method=method, rev=rev)

    def flop(self, question: Body, *, explain: bool = False, rev: str | None = None) -> FlopAnswer:
        """Floating-point operations, model and hardware; arguments as in `estimate`."""
        return self._post(FlopAnswer, "/v1/flops", question, explain=explain or None, rev=rev)

    def gpu_hours(self, question: Body, *, explain: bool = False, rev: str | None = None) -> GpuHoursAnswer:
        """Seconds, GPU-hours, days, dollars and energy; arguments as in `estimate`."""
        return self._post(GpuHoursAnswer, "/v1/gpu-hours", question, explain=explain or None, rev=rev)

    def timeline(self, question: Body, *, rev: str | None = None) -> TimelineAnswer:
        """The memory of every stage over a step; arguments as in `estimate`."""
        return self._post(TimelineAnswer, "/v1/memory/timeline", question, rev=rev)

    def check(self, job: Body, *, rev: str | None = None) -> Check:
        """A verdict on a question with limits, or on a launcher's own text, as for `POST /v1/check`."""
        return self._post(Check, "/v1/check", job, rev=rev)

    def launch_check(self, body: Body, on_event: Callable[[Event], object] = lambda _: None) -> LaunchCheck:
        """Start a launch check and wait for its end; a body as `POST /v1/launch-checks` takes it.

        Args:
            body: question or estimate_id, probes, time_budget_seconds, on
            on_event: called with each event until then

        Returns:
            measured beside predicted, the verdict, the estimate before and after
        """
        return self.launch_checks.wait(self.launch_checks.create(body).id, on_event)

    def solve(self, body: Body, *, rev: str | None = None) -> Solution:
        """The value of one open field, and the next one that fails; a body as `POST /v1/solve` takes it."""
        return self._post(Solution, "/v1/solve", body, rev=rev)

    def compare(self, body: Body, *, rev: str | None = None) -> ComparisonAnswer:
        """The same job on many clusters at many prices; a body as `POST /v1/compare` takes it."""
        return self._post(ComparisonAnswer, "/v1/compare", body, rev=rev)

    def differences(self, body: Body, *, rev: str | None = None) -> DifferenceAnswer:
        """What changed between two questions; a body as `POST /v1/differences` takes it."""
        return self._post(DifferenceAnswer, "/v1/differences", body, rev=rev)

    def sensitivity(self, body: Body, *, rev: str | None = None) -> SensitivityAnswer:
        """A table of named fields varied; a body as `POST /v1/sensitivity` takes it."""
        return self._post(SensitivityAnswer, "/v1/sensitivity", body, rev=rev)

    def plans(
        self, body: Body, on_progress: Callable[[PlanCounts], object] | None = None, *, rev: str | None = None
    ) -> PlanAnswer:
        """The best layouts for a job.

        Args:
            body: as `POST /v1/plans` takes it
            on_progress: called with the progress of the search, which then may take longer than the timeout
            rev: revision of the catalogue to answer under; None for that of now

        Returns:
            the plans
        """
        if on_progress is None:
            return self._post(PlanAnswer, "/v1/plans", body, rev=rev)
        sent = Sent(
            "POST", "/v1/plans", content=encoded(body), parameters=_given(rev=rev), headers=EVENT_STREAM, streams=True
        )
        with closing(self._sender.send(sent)) as response:
            try:
                for event in events_of(response.iter_bytes()):
                    document = json.loads(event.data)
                    if event.name == "plans":
                        return from_json(PlanAnswer, document)
                    if event.name == "problem":
                        raise Problem(document["status"], document)
                    if event.name == "progress":
                        on_progress(from_json(PlanCounts, document))
            except httpx.RequestError as error:
                raise Unreachable(f"the search broke off: {error!r}") from error
        raise Unreachable("the search ended before its answer")

    def batch(self, questions: Iterable[tuple[BatchKind, Body]], *, rev: str | None = None) -> Iterator[BatchAnswer]:
        """Any number of questions, in as few requests as take them.

        Args:
            questions: kinds and bodies, e.g. ("memory", {...})
            rev: revision of the catalogue to answer under; None for that of now

        Yields:
            an answer or a problem for each question, in order
        """
        for kinds, content in requests_of(questions):
            sent = Sent("POST", "/v1/batch", content=content, parameters=_given(rev=rev))
            yield from answers_of(kinds, self._sender.json(sent))

    def diagnose(self, body: Body, *, rev: str | None = None) -> Diagnosis:
        """Why a job ran out of memory; a question with `message`, `memory_stats` or both beside its parts."""
        return self._post(Diagnosis, "/v1/diagnose", body, rev=rev)

    def profile(
        self, trace: bytes, question: Body | None = None, *, records: bool = False, rev: str | None = None
    ) -> ProfileAnswer:
        """Where the time of a training step goes, beside its prediction.

        Args:
            trace: the file of torch.profiler, plain or compressed by gzip
            question: as in `estimate`; None for the trace alone
            records: add the matrix products as records for `measurements`
            rev: revision of the catalogue to answer under; None for that of now

        Returns:
            the step part by part, what costs time and what to change
        """
        given = _given(
            question=None if question is None else encoded(question).decode(),
            records="products" if records else None,
            rev=rev,
        )
        sent = Sent("POST", "/v1/profiles", content=trace, parameters=given, headers=OCTETS)
        return self._sender.answer(ProfileAnswer, sent)

    def reconcile(self, output: str) -> Reconciliation:
        """Finished jobs beside their estimates, from the output of `sacct --parsable2` with its header."""
        sent = Sent("POST", "/v1/reconciliations", content=output.encode(), headers=PLAIN_TEXT)
        return self._sender.answer(Reconciliation, sent)

    def export(
        self, target: str, question: Body, *, version: str | None = None, command: str | None = None,
        allow_loss: bool = False, rev: str | None = None,
    ) -> Export:  # fmt: skip
        """A question as a launch file.

        Args:
            target: the tool, one of `export_targets`
            question: as in `estimate`
            version: version of the format; None for the newest
            command: the command that a launcher starts; None for the program of the recipe's stack
            allow_loss: whether to write a file whose own job takes other memory or money than the question's
            rev: revision of the catalogue to answer under; None for that of now

        Returns:
            the file, and what it does not hold
        """
        options = {"version": version, "command": command, "allow_loss": allow_loss or None, "rev": rev}
        return self._post(Export, f"/v1/exports/{segment(target)}", question, **options)

    def export_targets(self) -> tuple[ExportTarget, ...]:
        """Tools with an export."""
        return self._items(ExportTarget, "/v1/exports")

    def import_formats(self) -> tuple[ImportFormat, ...]:
        """Kinds of files that are read."""
        return self._items(ImportFormat, "/v1/imports")

    def import_file(self, kind: str, content: str) -> Imported:
        """The question in a file of a training framework.

        Args:
            kind: a format of `import_formats`, such as megatron-lm
            content: the file, or the arguments

        Returns:
            model, recipe and layout, as far as it sets them
        """
        return self._post(Imported, f"/v1/imports/{segment(kind)}", {"content": content})

    def recognise_file(self, content: str, files: Mapping[str, str] | None = None) -> Imported:
        """The question in a file of whichever training framework.

        Args:
            content: the file, or the arguments
            files: files beside it by name, such as the DeepSpeed file that the arguments name

        Returns:
            model, recipe and layout, as far as it sets them, and why it is of that framework
        """
        return self._post(Imported, "/v1/imports", {"content": content, **({"files": files} if files else {})})

    def cell(self, metric: str, **fields: Value) -> Cell:
        """One number of an answer.

        Args:
            metric: its name, e.g. gpu_hours
            fields: the question in its flat form, e.g. sequence_length=8192, and options of a cell

        Returns:
            the number as text, its unit, and whether the job fits
        """
        response = self._sender.send(Sent("GET", f"/v1/cell/{segment(metric)}", parameters=_given(**fields)))
        headers: Any = {name: response.headers.get(f"X-{name}") for name in ("unit", "verdict")}
        if None in headers.values():
            raise Unreadable(f"the cell holds no number: {response.text}")
        return Cell(text=response.text, **headers)

    def stored_estimate(self, estimate_id: str) -> Answer:
        """The answer of a scenario, by its id."""
        return self._sender.answer(Answer, Sent("GET", f"/v1/estimates/{segment(estimate_id)}"))

    def share(self, scenario_id: str, *, days: int | None = None, expires_at: str | None = None) -> Share:
        """A link that shows a scenario to anyone who has it, for some days or until a moment; a month by default."""
        return self._post(
            Share, f"/v1/scenarios/{segment(scenario_id)}/share", _given(days=days, expires_at=expires_at)
        )

    def shares(self, scenario_id: str) -> tuple[ListedShare, ...]:
        """Links of a scenario: valid ones and, for thirty days, those that have ended."""
        return self._items(ListedShare, f"/v1/scenarios/{segment(scenario_id)}/shares")

    def revoke_share(self, scenario_id: str, share_id: str) -> None:
        """Revoke links of a scenario by their id; they open nothing from then on."""
        path = f"/v1/scenarios/{segment(scenario_id)}/shares/{segment(share_id)}"
        self._sender.send(Sent("DELETE", path))

    def workers(self) -> tuple[SeenWorker, ...]:
        """Workers that sent a request in the last week."""
        return self._items(SeenWorker, "/v1/workers")

    def choices(self) -> Mapping[str, Any]:
        """Every name that a field may have, with its meaning and source, by field."""
        choices: Mapping[str, Any] = self._sender.json(Sent("GET", "/v1/choices"))
        return choices

    def _items(self, kind: type[Kind], path: str) -> tuple[Kind, ...]:
        return tuple(from_json(kind, item) for item in self._sender.json(Sent("GET", path))["items"])

    def _post(self, kind: type[Kind], path: str, body: Body, **parameters: Value) -> Kind:
        """The answer to a body that writes nothing."""
        return self._sender.answer(kind, Sent("POST", path, content=encoded(body), parameters=_given(**parameters)))


def _given(**parameters: Value) -> dict[str, Value]:
    return {name: value for name, value in parameters.items() if value is not None}
