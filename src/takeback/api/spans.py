"""OpenTelemetry: a span for each effect that this process makes, and numbers. Only where the host has loaded its API.

The names of the GenAI conventions are strings of our own: the package that holds them is not settled yet. Arguments and
results are left out unless the host says so with the variable that its other instrumentation reads, and are masked.
"""

import os
import sys
from collections import OrderedDict
from typing import Any, NamedTuple

from takeback.adapters.protocol import traits_of
from takeback.audit.events import StoreEvent
from takeback.model.change import change_recorded
from takeback.model.record import Kind, Record
from takeback.model.remedy import Strategy
from takeback.policy.secrets import masked, masked_json

# Of the GenAI conventions, status "development".
OPERATION, EXECUTE_TOOL = "gen_ai.operation.name", "execute_tool"
TOOL_NAME, TOOL_CALL, TOOL_TYPE = "gen_ai.tool.name", "gen_ai.tool.call.id", "gen_ai.tool.type"
ARGUMENTS, RESULT = "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"
AGENT, CONVERSATION, ERROR = "gen_ai.agent.name", "gen_ai.conversation.id", "error.type"
# Ours.
STEP, RUN, UNDOES = "takeback.step.id", "takeback.run.id", "takeback.undoes"
REVERSIBILITY, DECISION, BYTES = "takeback.reversibility", "takeback.decision", "takeback.bytes_snapshotted"
OUTCOME, ADAPTER, KIND, RESOURCE = (
    "takeback.outcome",
    "takeback.adapter",
    "takeback.kind",
    "takeback.resource",
)
CAPTURES_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

_ENDS = (Kind.DONE, Kind.ABORT, Kind.STICK, Kind.DROP)
_FAILED = ("aborted", "expired", "stuck", "in-doubt")
_MOST = 1_000  # spans that are open, and that a later undo may be linked to


class _Begun(NamedTuple):
    span: Any
    at: int
    name: str
    bytes: int


class Spans:
    def __init__(self, tracer: Any, meter: Any, link: Any, status: Any, kind: Any) -> None:
        self._tracer, self._link, self._status, self._kind = tracer, link, status, kind
        self._open: OrderedDict[str, _Begun] = OrderedDict()
        self._ended: OrderedDict[str, Any] = OrderedDict()  # their contexts, for links
        self._decisions: OrderedDict[str, str] = OrderedDict()
        self._outcomes = meter.create_counter("takeback.effects", "{effect}", "Effects by how they ended.")
        self._undos = meter.create_counter(
            "takeback.undos", "{undo}", "Undos and redos that were carried out."
        )
        self._bytes = meter.create_counter(BYTES, "By", "Bytes kept so that undo can put them back.")
        self._seconds = meter.create_histogram(
            "takeback.effect.duration", "s", "From the intent to the outcome."
        )

    def tell(self, record: Record, event: StoreEvent) -> None:
        if event.name in ("approved", "denied"):
            _keep(self._decisions, event.effect, event.name)
        elif record.kind is Kind.INTENT:
            self._begin(record, event)
        elif record.kind in _ENDS and record.effect:
            self._end(record, event)
        elif event.name == "checkpoint":
            span = self._tracer.start_span("takeback.checkpoint", start_time=record.at * 1_000)
            span.set_attributes(
                {RUN: event.run, AGENT: event.agent, "takeback.label": str(event.more.get("label", ""))}
            )
            span.end(end_time=record.at * 1_000)

    def _begin(self, record: Record, event: StoreEvent) -> None:
        body = record.body
        change = change_recorded(
            body["adapter"], body["kind"], body["resource"], body["summary"], body.get("args", {})
        )
        calls = traits_of(change).calls
        tool = _tool(change.args, event, calls)
        name = "takeback.undo" if event.undoes else f"{EXECUTE_TOOL} {tool}"
        remedy: dict[str, Any] = body.get("remedy") or {}
        kept = _bytes_kept(remedy)
        undone = self._ended.get(event.undoes)
        attributes: dict[str, Any] = {
            OPERATION: EXECUTE_TOOL, TOOL_NAME: tool, TOOL_TYPE: "function" if calls else "extension",
            AGENT: event.agent, STEP: event.effect, RUN: event.run, ADAPTER: event.adapter, KIND: event.kind,
            RESOURCE: masked(event.resource), REVERSIBILITY: reversibility(remedy), BYTES: kept,
            DECISION: self._decisions.pop(event.effect, "none"), UNDOES: event.undoes,
            TOOL_CALL: str(change.args.get("call", "")), CONVERSATION: str(change.args.get("session", "")),
        }  # fmt: skip
        if _captures_content() and "arguments" in change.args:
            attributes[ARGUMENTS] = masked(str(change.args["arguments"]))
        links = [self._link(undone)] if undone else None
        known = {key: value for key, value in attributes.items() if value != ""}
        at = record.at * 1_000
        span = self._tracer.start_span(
            name, kind=self._kind.INTERNAL, start_time=at, links=links, attributes=known
        )
        begun = _keep(self._open, event.effect, _Begun(span, record.at, tool, kept))
        if begun:
            begun.span.end()

    def _end(self, record: Record, event: StoreEvent) -> None:
        begun = self._open.pop(event.effect, None)
        told = {OUTCOME: event.name, ADAPTER: event.adapter, KIND: event.kind}
        self._outcomes.add(1, told)
        if event.name in ("undone", "partly-undone", "redone"):
            self._undos.add(1, told)
        if begun is None:
            return
        self._bytes.add(begun.bytes, {ADAPTER: event.adapter})
        self._seconds.record((record.at - begun.at) / 1e6, told)
        begun.span.set_attribute(OUTCOME, event.name)
        if event.name in _FAILED:
            begun.span.set_attribute(ERROR, event.name)
            begun.span.set_status(self._status.ERROR, masked(event.why))
        receipt: Any = record.body.get("receipt")
        if _captures_content() and isinstance(receipt, dict) and "result" in receipt:
            begun.span.set_attribute(RESULT, str(masked_json(receipt)["result"]))
        begun.span.end(end_time=record.at * 1_000)
        _keep(self._ended, event.effect, begun.span.get_span_context())


def spans() -> Spans | None:
    """None where only a part of the API is there."""
    try:
        from opentelemetry import metrics, trace
    except ImportError:
        return None
    version = getattr(sys.modules.get("takeback"), "__version__", "")
    tracer = trace.get_tracer("takeback", version)
    meter = metrics.get_meter("takeback", version)
    return Spans(tracer, meter, trace.Link, trace.StatusCode, trace.SpanKind)


def reversibility(remedy: dict[str, Any]) -> str:
    """exact, inexact, compensated, irreversible or none, from a remedy as a record has it."""
    strategy = remedy.get("strategy", "")
    if strategy in (Strategy.TRANSACTION, Strategy.SNAPSHOT):
        return "exact" if remedy.get("exact", True) else "inexact"
    return {Strategy.COMPENSATION: "compensated", Strategy.IRREVERSIBLE: "irreversible"}.get(strategy, "none")


def _tool(args: dict[str, Any], event: StoreEvent, calls: bool) -> str:
    if isinstance(tool := args.get("tool"), str) and tool:
        return tool
    if calls:
        return event.resource.removeprefix("call://").rpartition(":")[2]
    return f"{event.adapter}.{event.kind}"


def _bytes_kept(remedy: dict[str, Any]) -> int:
    """Of the content before, as far as the targets say it."""
    before: list[dict[str, Any]] = [one[1] for one in remedy.get("targets", [])]
    return sum(int(one.get("size", 0)) for one in before)


def _captures_content() -> bool:
    return os.environ.get(CAPTURES_CONTENT, "").lower() in ("true", "1", "span_only", "span_and_event")


def _keep(where: "OrderedDict[str, Any]", key: str, value: Any) -> Any:
    """The oldest, if there is no more room for all."""
    where[key] = value
    return where.popitem(last=False)[1] if len(where) > _MOST else None
