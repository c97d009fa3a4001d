"""Words, numbers and names as a person sees them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takeback.errors import Corrupt, Failed, Misuse, Refused, Stuck
from takeback.frontends.cli.answer import answer
from takeback.frontends.cli.output.errors import exit_code
from takeback.frontends.cli.output.screen import (
    Screen,
    clean,
    clean_line,
    counted,
    error_json,
    local_time,
    seconds_in_words,
)
from takeback.model.settings import bytes_in_words

DAY = 86_400_000_000


@given(st.text())
def test_no_name_can_break_a_line_or_reach_the_terminal(name: str) -> None:
    assert clean(name).isprintable()


@given(st.binary())
def test_no_line_of_a_file_reaches_the_terminal_raw(line: bytes) -> None:
    assert clean_line(line).replace("\t", "").isprintable()


def test_what_can_be_printed_stays_as_it_is() -> None:
    assert clean("Ünïcode – 日本語") == "Ünïcode – 日本語"
    assert clean("a\nb\x1b") == "a\\nb\\x1b"
    assert clean("caf\udce9") == "caf\\xe9"


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 bytes"), (1, "1 byte"), (1023, "1023 bytes"), (1024, "1.0 KB"), (1536, "1.5 KB"),
     (500 << 20, "500 MB"), (3 << 40, "3.0 TB"), (5 << 50, "5120 TB")],
)  # fmt: skip
def test_bytes_in_words(count: int, words: str) -> None:
    assert bytes_in_words(count) == words


@pytest.mark.parametrize(
    ("seconds", "words"), [(1, "1 second"), (90, "90 seconds"), (3600, "1 hour"), (172_800, "2 days")]
)
def test_seconds_in_words(seconds: int, words: str) -> None:
    assert seconds_in_words(seconds) == words
    assert counted(1000, "effect") == "1,000 effects"


def test_a_time_is_said_as_shortly_as_it_can_be() -> None:
    now = 1_800_000_000_000_000  # 2027-01-15 08:00 UTC

    assert local_time(now - 3_600_000_000, now) == "07:00:00"
    assert local_time(now - 2 * DAY, now) == "Jan 13 08:00"
    assert local_time(now - 40 * DAY, now) == "2026-12-06"


def test_colour_is_only_put_where_there_is_colour() -> None:
    assert Screen(colour=True).paint("x", "red") == "\033[31mx\033[0m"
    assert Screen().paint("x", "red") == "x"
    assert Screen(colour=True).paint("x", "") == "x"


def test_an_error_as_json_names_its_effect_if_it_has_one() -> None:
    told = error_json(Refused("No.", hint="Yes.", effect="abc"))

    assert told == {"type": "Refused", "message": "No.", "hint": "Yes.", "exit_code": 3, "effect": "abc"}
    assert "effect" not in error_json(Failed("No."))


def test_of_several_changes_a_mixture_is_failed_and_worse_is_worse() -> None:
    assert exit_code(True, []) == 0
    assert exit_code(False, [Refused("")]) == 3
    assert exit_code(True, [Refused("")]) == 1
    assert exit_code(True, [Refused(""), Stuck("")]) == 4
    assert exit_code(True, [Corrupt(""), Misuse("")]) == 6


def test_an_unexpected_error_is_called_a_bug_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def explode(*_: object) -> None:
        raise ZeroDivisionError("of all things")

    monkeypatch.setattr("takeback.frontends.cli.commands.log.nothing_yet", explode)

    assert answer(["log"]) == 1
    assert "this is a bug in takeback" in capsys.readouterr().err
    assert answer(["log", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["exit_code"] == 1
    monkeypatch.setenv("TAKEBACK_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        answer(["log"])


def test_ctrl_c_ends_with_130(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("takeback.frontends.cli.commands.log.nothing_yet", interrupted)
    monkeypatch.setattr("takeback.frontends.cli.answer.swallow_output", lambda: None)

    assert answer(["log"]) == 130
    assert capfd.readouterr().err == ""
