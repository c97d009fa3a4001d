"""A server that does not answer is asked once in a recovery, others as before."""

from types import SimpleNamespace

import pytest

import takeback
from takeback.engine.pipelined import AskedOnce
from takeback.engine.settled import Cause, Settled
from takeback.errors import ResourceUnreachable, ServerUnreachable
from takeback.frontends.cli.session.store import tell_recovered
from takeback.model.change import Change


class Deaf:
    """Answers for one server only."""

    name = "postgres"

    class traits:
        marks = True

    def __init__(self) -> None:
        self.asked: list[str] = []

    def assess(self, change: Change) -> str:
        self.asked.append(change.resource)
        if "dead" in change.resource:
            raise ServerUnreachable("nobody answers")
        if "busy" in change.resource:
            raise ResourceUnreachable("a session is still at work")
        return "fine"


def change(resource: str) -> Change:
    return Change("postgres", "sql", resource, "x", {})


def test_a_server_that_does_not_answer_is_asked_once() -> None:
    deaf = Deaf()
    adapter = AskedOnce({"postgres": deaf})["postgres"]  # pyright: ignore[reportArgumentType]
    for name in ("a", "b"):
        with pytest.raises(ServerUnreachable):
            adapter.assess(change(f"postgresql://dead:5432/{name}"))
        with pytest.raises(ResourceUnreachable):
            adapter.assess(change(f"postgresql://busy/{name}"))
        assert adapter.assess(change(f"postgresql://alive/{name}")) == "fine"
    assert [one for one in deaf.asked if "dead" in one] == ["postgresql://dead:5432/a"]
    assert len(deaf.asked) == 5


def test_files_without_a_server_are_told_apart() -> None:
    deaf = Deaf()
    adapter = AskedOnce({"sqlite": deaf})["sqlite"]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ServerUnreachable):
        adapter.assess(change("sqlite:////tmp/dead.db"))
    assert adapter.assess(change("sqlite:////tmp/alive.db")) == "fine"


def test_the_error_is_one_that_callers_know() -> None:
    assert issubclass(takeback.ServerUnreachable, takeback.ResourceUnreachable)


def test_of_many_effects_on_a_dead_server_it_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    why = "PostgreSQL did not let us in: connection timed out."
    settled = tuple(
        Settled(f"{number}abcdefgh", "run", "UPDATE t", "left", why, Cause.IN_DOUBT) for number in range(8)
    )

    tell_recovered(SimpleNamespace(unrecovered="", recovered=settled))  # pyright: ignore[reportArgumentType]

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("Not settled yet: 0abcdefg, ") and line.count("PostgreSQL") == 1
    assert "and 3 more are in doubt: PostgreSQL did not let us in" in line
