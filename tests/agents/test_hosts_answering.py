"""What takeback answers, in the words of each host: as they were tried on the real ones."""

import json
from typing import Any

import pytest

from takeback.frontends.agents.event import Answer, Event, Kind
from takeback.frontends.agents.hosts import NAMES, Reply, host, off_switch

NOTHING = {"claude-code": "", "codex": "", "gemini": "", "opencode": "", "cursor": "{}"}


def answered(name: str, kind: Kind, answer: Answer) -> Reply:
    one = host(name)
    events = (point.name for point in one.EVENTS)
    event = next(event for event in events if one.read({"hook_event_name": event}, {}, 1).kind is kind)
    payload = {"hook_event_name": event}
    return one.answer(Event(kind, name, "s", "/p"), payload, answer)


def words(reply: Reply) -> Any:
    assert reply.exit == 0
    return json.loads(reply.stdout)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [Kind.BEFORE_CALL, Kind.AFTER_CALL, Kind.PROMPT, Kind.TURN_END])
def test_nothing_to_say_lets_the_host_decide(name: str, kind: Kind) -> None:
    assert answered(name, kind, Answer()) == Reply(NOTHING[name])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [Kind.BEFORE_CALL, Kind.PROMPT])
def test_every_refusal_ends_with_the_command_that_switches_takeback_off(name: str, kind: Kind) -> None:
    reply = answered(name, kind, Answer(refusal="It would delete the store."))

    said = reply.stdout + reply.stderr
    assert "It would delete the store." in said
    assert f"takeback hook uninstall {name}" in said
    assert "ask" not in said.split()


def test_a_call_is_denied_as_each_host_wants_it() -> None:
    refusal = Answer(refusal="No.")
    text = {name: f"No.\n{off_switch(name)}" for name in NAMES}

    assert words(answered("claude-code", Kind.BEFORE_CALL, refusal)) == {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": text["claude-code"],
        }
    }
    assert words(answered("gemini", Kind.BEFORE_CALL, refusal)) == {
        "decision": "deny",
        "reason": text["gemini"],
    }
    cursor = {"permission": "deny", "user_message": text["cursor"], "agent_message": text["cursor"]}
    assert words(answered("cursor", Kind.BEFORE_CALL, refusal)) == cursor
    assert answered("codex", Kind.BEFORE_CALL, refusal) == Reply("", text["codex"] + "\n", 2)
    assert answered("opencode", Kind.BEFORE_CALL, refusal) == Reply("", text["opencode"] + "\n", 2)


@pytest.mark.parametrize("name", NAMES)
def test_a_call_is_never_answered_for_the_person(name: str) -> None:
    for answer in (
        Answer(),
        Answer(context="c"),
        Answer(notice="n"),
        Answer(refusal="r"),
        Answer(command="ls"),
    ):
        said = answered(name, Kind.BEFORE_CALL, answer).stdout
        assert '"allow"' not in said
        assert '"ask"' not in said
        assert "updatedInput" not in said


@pytest.mark.parametrize("name", NAMES)
def test_the_model_is_told_after_a_call(name: str) -> None:
    assert "3 files changed" in answered(name, Kind.AFTER_CALL, Answer(context="3 files changed")).stdout


@pytest.mark.parametrize("name", NAMES)
def test_too_late_to_refuse_is_not_too_late_to_say(name: str) -> None:
    reply = answered(name, Kind.AFTER_CALL, Answer(refusal="That went past takeback."))

    assert reply.exit == 0
    assert "That went past takeback." in reply.stdout


def test_what_makes_a_host_go_on_or_ignore_the_answer_is_never_said() -> None:
    assert answered("claude-code", Kind.TURN_END, Answer(context="c")).stdout == ""
    assert answered("codex", Kind.BEFORE_CALL, Answer(context="c", notice="n")).stdout == ""
    assert words(answered("cursor", Kind.TURN_END, Answer(context="c"))) == {}
