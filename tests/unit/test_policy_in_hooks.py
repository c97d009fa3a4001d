"""What the policy says to a call of a coding agent, in the words of its host."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.api import opened_of
from takeback.frontends.agents.event import Answer, Event, Kind, Tool
from takeback.frontends.agents.hosts import claude_code, cursor
from takeback.frontends.agents.policy import by_policy

RULE = '[[rule]]\nname = "the rule"\nmatch = {{{}}}\nthen = "{}"\nwhy = "Because."\n{}\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def tb(tmp_path: Path) -> Iterator[takeback.Takeback]:
    with takeback.open(tmp_path / "store") as opened:
        yield opened


def asked(tb: takeback.Takeback, project: Path, rules: str, **about: Any) -> Answer:
    (project / "takeback.toml").write_text(rules)
    event = Event(Kind.BEFORE_CALL, about.pop("host", "claude-code"), "s", os.fspath(project), **about)
    return by_policy(opened_of(tb).parts, event)


SHELL: dict[str, Any] = {"tool": Tool.SHELL, "name": "Bash", "command": "cd x && git push --force"}


def test_a_denied_command_names_the_rule_and_why(tb: takeback.Takeback, project: Path) -> None:
    found = asked(tb, project, RULE.format('command = "git push * --force"', "deny", ""), **SHELL)

    assert "the rule 'the rule'" in found.refusal
    assert "Because." in found.refusal
    assert found.final


def test_what_no_rule_matches_is_let_through(tb: takeback.Takeback, project: Path) -> None:
    rules = RULE.format('command = "rm"', "deny", "")

    assert asked(tb, project, rules, **SHELL) == Answer()
    assert asked(tb, project, "x = [", tool=Tool.READ, name="Read") == Answer()


@pytest.mark.parametrize("host", ["claude-code", "cursor"])
def test_a_host_that_can_ask_asks_its_user(host: str, tb: takeback.Takeback, project: Path) -> None:
    found = asked(tb, project, RULE.format('tool = "Bash"', "ask", ""), host=host, **SHELL)

    assert "Because." in found.asks
    assert not found.refusal


def test_claude_code_and_cursor_get_their_word_for_a_question() -> None:
    event = Event(Kind.BEFORE_CALL, "x", "s", "/")
    answer = Answer(asks="may it?")

    told = json.loads(claude_code.answer(event, {"hook_event_name": "PreToolUse"}, answer).stdout)
    assert told["hookSpecificOutput"]["permissionDecision"] == "ask"
    told = json.loads(cursor.answer(event, {"hook_event_name": "beforeShellExecution"}, answer).stdout)
    assert told["permission"] == "ask"


@pytest.mark.parametrize(
    ("host", "more"),
    [
        ("codex", ""),
        ("gemini", ""),
        ("claude-code", "asks = {people = 2}"),
        ("claude-code", "asks = {challenge = true}"),
        ("claude-code", 'asks = {of = ["ann"]}'),
    ],
)
def test_what_a_host_cannot_ask_is_denied_with_the_way_that_waits(
    host: str, more: str, tb: takeback.Takeback, project: Path
) -> None:
    found = asked(tb, project, RULE.format("", "ask", more), host=host, **SHELL)

    assert "takeback run --hold" in found.refusal


def test_an_edit_is_judged_by_its_path_and_a_tool_by_its_arguments(
    tb: takeback.Takeback, project: Path
) -> None:
    edit: dict[str, Any] = {"tool": Tool.EDIT, "name": "Write", "paths": (os.fspath(project / "conf/a"),)}
    mail: dict[str, Any] = {"tool": Tool.OTHER, "name": "mcp__pay__send", "input": {"amount": 2000}}

    assert asked(tb, project, RULE.format('path = "conf"', "deny", ""), **edit).refusal
    assert not asked(tb, project, RULE.format('path = "src"', "deny", ""), **edit).refusal
    rules = RULE.format('tool = "mcp__pay__*", argument = {amount = ">1000"}', "deny", "")
    assert asked(tb, project, rules, **mail).refusal
    assert not asked(tb, project, rules, **mail | {"input": {"amount": 5}}).refusal


def test_an_agent_does_not_edit_its_rules(tb: takeback.Takeback, project: Path) -> None:
    edit: dict[str, Any] = {
        "tool": Tool.EDIT,
        "name": "Write",
        "paths": (os.fspath(project / "takeback.toml"),),
    }

    assert "the policy itself" in asked(tb, project, "", **edit).refusal


def test_where_a_command_must_run_in_a_sandbox_it_is_not_let_through(
    tb: takeback.Takeback, project: Path
) -> None:
    rules = '[[rule]]\nname = "boxed"\nmatch = {command = "git"}\nplace = "sandbox"\n'

    assert "takeback run -- COMMAND" in asked(tb, project, rules, **SHELL).refusal
    assert asked(tb, project, rules, **SHELL, apart=True) == Answer()


def test_a_broken_file_stops_the_call(tb: takeback.Takeback, project: Path) -> None:
    with pytest.raises(takeback.Misuse, match="line 1, column"):
        asked(tb, project, "x = [", **SHELL)
