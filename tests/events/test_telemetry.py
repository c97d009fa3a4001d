"""The host's logging and OpenTelemetry hear what is recorded; where it has none of them, nothing is loaded."""

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanKind, StatusCode

import takeback
from takeback.api import spans
from takeback.engine.approvable import challenge
from takeback.policy.secrets import MASK
from tests.e2e.conftest import surroundings
from tests.secret_table import mixed
from tests.world import World

SECRET = mixed("abcdefghijkmnpqr23456789", 18)


def test_what_is_recorded_is_logged_under_our_names(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "takeback")
    with takeback.open() as tb:
        with tb.run("work") as run:
            effect = run.write(world / "a", "1")
        tb.undo(effect)

    told = [(one.name, one.levelname, one.getMessage().split()[0]) for one in caplog.records]
    assert told == [
        ("takeback.runs", "INFO", "run"), ("takeback.effects", "DEBUG", "began"), ("takeback.effects", "INFO", "done"),
        ("takeback.runs", "INFO", "run"), ("takeback.runs", "INFO", "run"), ("takeback.effects", "DEBUG", "undo"),
        ("takeback.effects", "INFO", "undone"), ("takeback.runs", "INFO", "run"),
    ]  # fmt: skip
    fields: Any = caplog.records[2]
    assert (fields.takeback["event"], fields.takeback["effect"]) == ("done", effect.id)


def test_no_handler_is_added_and_below_its_level_nothing_is_made(world: World) -> None:
    with takeback.open() as tb, tb.run("work") as run:
        run.write(world / "a", "1")

    ours = [name for name in logging.Logger.manager.loggerDict if name.split(".")[0] == "takeback"]
    assert all(not logging.getLogger(name).handlers for name in ours)


def test_secrets_are_masked_in_logs(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "takeback")
    with takeback.open() as tb, tb.run(f"deploy --password {SECRET}") as run:
        run.write(world / f"token={SECRET}", "1")

    seen = "".join(f"{one.getMessage()}{vars(one)}" for one in caplog.records)
    assert MASK in seen and SECRET not in seen


def test_what_is_rolled_back_is_never_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "takeback")
    with takeback.open() as tb:
        with pytest.raises(RuntimeError), tb.store.together():
            tb.session("lost").leave()
            raise RuntimeError
        assert not caplog.records
        with tb.store.together():
            tb.session("kept")
            assert not caplog.records  # it is not durable yet
        assert [one.getMessage().split()[-1] for one in caplog.records] == ["kept"]


def test_a_handler_runs_without_the_lock_of_the_store(world: World) -> None:
    """Another thread can write meanwhile; and a handler that fails changes nothing."""
    wrote: list[str] = []
    with takeback.open() as tb:

        class Slow(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                if not wrote:
                    wrote.append("")
                    other = threading.Thread(target=lambda: wrote.append(tb.session("other").id))
                    other.start()
                    other.join(20)
                raise RuntimeError("a handler of someone")

        handler, logger = Slow(), logging.getLogger("takeback")
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        try:
            with tb.run("work") as run:
                run.write(world / "a", "1")
        finally:
            logger.removeHandler(handler)
            logger.setLevel(logging.NOTSET)
        assert len(wrote) == 2 and (world / "a").read_text() == "1"


def test_where_the_host_loads_neither_neither_is_loaded(world: World) -> None:
    program = """
import sys, takeback
with takeback.open() as tb, tb.run("work") as run:
    run.write(sys.argv[1], "1")
print(*sorted(sys.modules))
"""
    words = [sys.executable, "-X", "utf8", "-c", program, world / "a"]
    said = subprocess.run(words, env=surroundings(), capture_output=True, text=True, check=True)
    unwanted = {
        "logging",
        "opentelemetry",
        "takeback.audit.events",
        "takeback.api.spans",
        "takeback.policy.secrets",
    }
    assert unwanted & set(said.stdout.split()) == set()


class Watch:
    """Spans and numbers in memory, from providers of our own: the global ones are not ours to set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.tracers.get_tracer("host")
        meter = MeterProvider([self.reader]).get_meter("takeback")
        made = spans.Spans(self.tracers.get_tracer("takeback"), meter, Link, StatusCode, SpanKind)
        monkeypatch.setattr(spans, "spans", lambda: made)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return tuple(one for one in self.exporter.get_finished_spans() if one.name != "agent")

    def numbers(self) -> dict[str, dict[str, Any]]:
        data = self.reader.get_metrics_data()
        assert data
        found = data.resource_metrics[0].scope_metrics[0].metrics
        return {
            one.name: {
                str((point.attributes or {}).get("takeback.outcome", "")): getattr(point, "value", None)
                or point
                for point in one.data.data_points
            }
            for one in found
        }


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    return Watch(monkeypatch)


def test_an_effect_is_a_span_below_what_the_host_does_and_an_undo_links_to_it(
    watch: Watch, world: World
) -> None:
    (world / "a").write_bytes(b"x" * 100)
    with takeback.open() as tb:
        with watch.tracer.start_as_current_span("agent") as parent, tb.run("work", agent="me") as run:
            effect = run.write(world / "a", "1")
        tb.undo(effect)

    done, undone = watch.spans
    attributes = dict(done.attributes or {})
    assert done.name == "execute_tool file.write"
    assert done.parent and done.parent.span_id == parent.get_span_context().span_id
    assert attributes["gen_ai.operation.name"] == "execute_tool"
    assert attributes["gen_ai.agent.name"] == "me"
    assert attributes["takeback.step.id"] == effect.id
    assert attributes["takeback.reversibility"] == "exact"
    assert attributes["takeback.decision"] == "none"
    assert attributes["takeback.bytes_snapshotted"] == 100
    assert undone.name == "takeback.undo" and (undone.attributes or {})["takeback.undoes"] == effect.id
    assert [link.context.span_id for link in undone.links] == [done.context.span_id]
    assert done.end_time and done.start_time and done.end_time >= done.start_time
    assert watch.numbers()["takeback.effects"] == {"done": 1, "undone": 1}
    assert watch.numbers()["takeback.undos"] == {"undone": 1}


def test_a_change_that_fails_is_a_failed_span(watch: Watch, world: World) -> None:
    with takeback.open() as tb, tb.run("work") as run, pytest.raises(takeback.TakebackError):
        run.write(world / "a", "1", checks=[takeback.checks.after(lambda: False)])

    (failed,) = watch.spans
    assert failed.status.status_code is StatusCode.ERROR
    assert (failed.attributes or {})["error.type"] == "aborted"


def _told(secret: str, *, key: str) -> dict[str, str]:
    return {"password": secret}


@pytest.mark.parametrize("captures", ["", "true"])
def test_arguments_and_results_only_where_the_host_asks_and_masked(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, captures: str
) -> None:
    monkeypatch.setenv(spans.CAPTURES_CONTENT, captures)
    action = takeback.action(undo=takeback.IRREVERSIBLE("it is only told"), risk="low", honours_key=True)(
        _told
    )
    with takeback.open() as tb, tb.run("work") as run:
        tb.tell = lambda words: None
        try:
            run.call(action, secret=f"token={SECRET}")
        except takeback.TakebackError:
            (waiting,) = tb.pending()
            tb.approve(waiting.id, by="kim", answer=challenge(waiting))
            run.call(action, secret=f"token={SECRET}")

    (called,) = watch.spans
    attributes = dict(called.attributes or {})
    assert attributes["gen_ai.tool.name"] == "_told"
    assert attributes["takeback.reversibility"] == "irreversible"
    assert attributes["takeback.decision"] == "approved"
    for content in (spans.ARGUMENTS, spans.RESULT):
        assert (content in attributes) == bool(captures)
    assert SECRET not in str(attributes)
