"""Checks say yes by silence and no in one sentence; whatever the bytes are, they do not crash."""

import os
import sys
import time

import pytest

from takeback.errors import Misuse, ValidationFailed, VerifyFailed
from takeback.model.change import Staged
from takeback.model.resource import file_resource
from takeback.policy import checks
from takeback.policy.secrets import first_secret

GARBAGE = bytes(range(256)) * 40 + b"\x00\xff\xfe"


@pytest.fixture
def staged(tmp_path):
    def put(content, *, mode=0o644, hold=True, name="app.conf"):
        path = tmp_path / f".staged-{name}"
        path.write_bytes(content)
        return Staged(file_resource(str(tmp_path / name)), str(path), content if hold else None, mode)

    return put


def ask(check, staged):
    return check.call(staged)


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (checks.json, b'{"a": [1, 2.5, null]}', b'{"a": 1,}'),
        (checks.json, b"[]", b'{"a": NaN}'),
        (checks.json, b'{"a": {"x": 1}, "b": {"x": 1}}', b'{"a": 1, "a": 2}'),
        (checks.json, b"1", b""),
        (checks.yaml, b"a: 1\n---\nb: 2\n", b"a: [1\n"),
        (checks.yaml, b"", b"a: 1\na: 2\n"),
        (checks.yaml, b"a: {b: 1}\n", b"a: b: c\n"),
        (checks.toml, b"a = 1\n[b]\n", b"a = \n"),
        (checks.toml, b"", b"a = 1\na = 2\n"),
        (checks.python, b"x = 1\n", b"def f(:\n"),
        (checks.python, b"# coding: latin-1\nx = '\xe9'\n", b"x = '\xe9'\n"),
        (checks.python, b"", b"x = 1\x00"),
    ],
)
def test_a_syntax_check_takes_what_parses_and_nothing_else(staged, check, good, bad):
    assert ask(check(), staged(good)) is None
    assert ask(check(), staged(good, hold=False)) is None
    assert ask(check(), staged(bad))
    assert ask(check(), staged(bad, hold=False))


ALL = [
    checks.json(),
    checks.yaml(),
    checks.toml(),
    checks.python(),
    checks.no_plaintext_secret(),
    checks.not_world_writable(),
    checks.max_size(10),
    checks.command("cat {staged}"),
    checks.check(lambda staged: staged.content.decode()),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("check", ALL, ids=lambda check: check.name)
@pytest.mark.parametrize(
    "content", [GARBAGE, b"", b"[" * 100_000, b"\xff" * 300_000], ids=["bytes", "empty", "deep", "long"]
)
def test_no_check_crashes_on_any_bytes(staged, check, content):
    answer = ask(check, staged(content))

    assert answer is None or (isinstance(answer, str) and "\n" not in answer)


def test_what_python_says_names_the_line(staged):
    assert ask(checks.python(), staged(b"a = 1\nif\n")) == "line 2: invalid syntax"


def test_before_checks_raise_that_nothing_was_changed(staged):
    with pytest.raises(ValidationFailed, match=r"^The check 'json' failed for .*/app\.conf: .+\.$") as caught:
        checks.run_checks([checks.not_world_writable(), checks.json()], staged(b"{"))

    assert caught.value.exit_code == 3 and caught.value.hint


def test_after_checks_wait_for_their_stage_and_raise_that_the_change_failed(staged):
    healthy = checks.after(lambda: "port 80 is closed", name="health")
    here = staged(b"x")

    checks.run_checks([healthy], here)
    with pytest.raises(
        VerifyFailed, match=r"The check 'health' failed after .*: port 80 is closed\."
    ) as caught:
        checks.run_checks([healthy, checks.json()], here, stage="after")

    assert caught.value.exit_code == 1


def test_checks_are_asked_in_order_and_the_first_no_ends_it(staged):
    asked = []

    def note(name, answer):
        return checks.check(lambda: asked.append(name) or answer, name=name)

    with pytest.raises(ValidationFailed, match="'two'"):
        checks.run_checks([note("one", None), note("two", False), note("three", None)], staged(b""))

    assert asked == ["one", "two"]


@pytest.mark.parametrize("answer", [None, True])
def test_a_function_says_yes_with_none_or_true(staged, answer):
    assert ask(checks.check(lambda staged: answer), staged(b"")) is None


@pytest.mark.parametrize(
    ("answer", "said"),
    [(False, "it answered False"), ("too big.", "too big"), (0, "it answered 0"), ("", "it answered ''")],
)
def test_anything_else_a_function_says_is_a_no(staged, answer, said):
    assert ask(checks.check(lambda staged: answer), staged(b"")) == said


def test_an_exception_in_a_function_is_a_no_with_its_reason(staged):
    def port_in_range(staged):
        raise ValueError("port 99999 is out of range")

    check = checks.check(port_in_range)

    assert check.name == "port_in_range"
    assert ask(check, staged(b"")) == "ValueError: port 99999 is out of range"


def test_a_function_sees_the_staged_bytes(staged):
    seen = []

    ask(checks.check(lambda staged: seen.append(staged.content)), staged(b"hello"))

    assert seen == [b"hello"]


# -- commands


def test_a_command_sees_the_staged_file_and_the_target_by_name(staged):
    here = staged(b"x", name="with space.conf")
    target = os.path.join(os.path.dirname(here.path), "with space.conf")
    code = "import sys; print(sys.argv[1:]); sys.exit(3)"

    said = ask(checks.command(f"{sys.executable} -c '{code}' --in={{staged}} {{target}}"), here)

    assert said == f"{sys.executable} ended with exit code 3: {['--in=' + here.path, target]!r}"


def test_a_command_that_ends_well_says_nothing(staged):
    assert ask(checks.command("grep -q hello {staged}"), staged(b"hello\n")) is None
    assert (
        ask(checks.command("grep -q hello {staged}"), staged(b"goodbye\n")) == "grep ended with exit code 1"
    )


def test_there_is_no_shell(staged, tmp_path):
    assert ask(checks.command("echo $HOME ; touch made | false"), staged(b"")) is None
    assert not os.path.exists("made") and not (tmp_path / "made").exists()


def test_a_path_that_looks_like_a_placeholder_is_left_alone(staged):
    here = staged(b"x", name="{target}")

    assert ask(checks.command("test -f {staged}"), here) is None


def test_only_the_last_lines_of_a_talkative_command_are_told(staged):
    said = ask(checks.command("sh -c 'seq 1 200000; exit 1'"), staged(b""))

    assert said == "sh ended with exit code 1: 199996; 199997; 199998; 199999; 200000"


def test_at_the_time_limit_a_command_dies_with_everything_it_started(staged, tmp_path):
    note = tmp_path / "pids"
    started = time.monotonic()

    said = ask(
        checks.command(f"sh -c 'sleep 60 & echo $! > {note}; echo $$ >> {note}; wait'", timeout=0.5),
        staged(b""),
    )

    assert said == "sh was killed after 0.5 s"
    assert time.monotonic() - started < 10
    pids = [int(word) for word in note.read_text().split()]
    assert len(pids) == 2
    # The one that was not our child is reaped by another; that takes the kernel a moment.
    until = time.monotonic() + 10
    while any(map(_runs, pids)) and time.monotonic() < until:
        os.sched_yield()
    assert not any(map(_runs, pids))


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


def test_a_command_that_leaves_a_daemon_behind_is_not_waited_for(staged):
    started = time.monotonic()

    said = ask(checks.command("sh -c 'sleep 5 & exit 0'", timeout=30), staged(b""))

    assert said is None and time.monotonic() - started < 4


def test_a_command_killed_by_a_signal_says_so(staged):
    assert ask(checks.command("sh -c 'kill -9 $$'"), staged(b"")) == "sh ended with signal 9"


def test_a_command_that_is_not_there_is_a_no(staged):
    said = ask(checks.command("no-such-program-here {staged}"), staged(b""))
    # "Permission denied" where the PATH names a directory that may not be looked into.
    reasons = ("No such file or directory", "Permission denied")
    assert said in [f"no-such-program-here could not be started: {reason}" for reason in reasons]


@pytest.mark.parametrize("line", ["", "   ", "echo 'open"])
def test_a_command_line_that_is_no_command_is_misuse(line):
    with pytest.raises(Misuse) as caught:
        checks.command(line)

    assert caught.value.hint


def test_a_time_limit_of_nothing_is_misuse():
    with pytest.raises(Misuse):
        checks.command("true", timeout=0)


def test_only_a_command_on_the_staged_file_needs_a_name():
    assert checks.needs_name([checks.json(), checks.command("nginx -t -c {staged}")])
    assert not checks.needs_name([checks.json(), checks.command("true"), checks.after("test -f {staged}")])


# -- afterwards


def test_a_command_can_be_asked_afterwards(staged):
    check = checks.after("grep -q up {target}", name="is up")
    here = staged(b"")
    target = os.path.join(os.path.dirname(here.path), "app.conf")

    with open(target, "w") as file:
        file.write("down")
    with pytest.raises(VerifyFailed, match="'is up'"):
        checks.run_checks([check], here, stage="after")
    with open(target, "w") as file:
        file.write("up")
    checks.run_checks([check], here, stage="after")


def test_another_check_can_be_asked_afterwards(staged):
    with pytest.raises(VerifyFailed):
        checks.run_checks([checks.after(checks.json())], staged(b"{"), stage="after")


def test_a_function_that_does_not_answer_in_time_is_a_no(staged):
    import threading

    never = threading.Event()

    assert ask(checks.after(never.wait, name="hangs", timeout=0.05), staged(b"")) == "no answer within 0.05 s"
    never.set()


# -- policy


@pytest.mark.parametrize(
    ("mode", "fine"), [(0o644, True), (0o600, True), (0o646, False), (0o777, False), (0o664, True)]
)
def test_world_writable_modes_are_refused(staged, mode, fine):
    said = ask(checks.not_world_writable(), staged(b"", mode=mode))

    assert (said is None) == fine
    assert fine or f"{mode:04o}" in said


def test_size_is_counted_in_bytes_held_or_not(staged):
    assert ask(checks.max_size(4), staged(b"1234")) is None
    assert ask(checks.max_size(4), staged(b"12345")) == "5 bytes is more than 4"
    assert ask(checks.max_size(4), staged(b"12345", hold=False)) == "5 bytes is more than 4"
    with pytest.raises(Misuse):
        checks.max_size(-1)


# Put together here, so that this file itself holds none.
SECRETS = {
    "-----BEGIN RSA " + "PRIVATE KEY-----": "a private key",
    "-----BEGIN " + "PRIVATE KEY-----": "a private key",
    "-----BEGIN OPENSSH " + "PRIVATE KEY-----": "a private key",
    "aws = AKIA" + "QYLPMN5HXBTR7KDZ": "an AWS access key",
    "t: ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8": "a GitHub token",
    "t: github_pat_" + "11ABCDEFG0abcdefghijklmnopqrstuvwxyz": "a GitHub token",
    "slack xoxb-" + "123456789012-abcdefGHIJKL": "a Slack token",
    "stripe: sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc": "a Stripe key",
    "k=sk-ant-api03-" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9": "an Anthropic key",
    "k=sk-proj-" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9": "an OpenAI key",
    'password = "' + 'hunter2-and-more"': "a password or key written out",
    '"db_password": "' + 'Pa$$w0rd!"': "a password or key written out",
    "DB_PASSWORD=" + "s3cr3tP4ssw0rd": "a password or key written out",
    "  apiKey: '" + "9f8e7d6c5b4a39281706'": "a password or key written out",
    "client_secret: " + "Zx81Qw72Er63Ty54  # prod": "a password or key written out",
    "url: postgres://app:" + "kJ8s-dl2@db/app": "an address with a password in it",
    "password: " + "hunter2": "a password or key written out",
    "DB_PASSWORD=" + "s3cr3tpass!": "a password or key written out",
    "export DB_PASS=" + "opensesame": "a password or key written out",
    "passwd = " + "opensesame  ; of the ini file": "a password or key written out",
    '  "pwd": "' + 'abcd",': "a password or key written out",
    "[db] password = '" + "1234'": "a password or key written out",
    '{"user": "me", "apiKey": "' + 'k-77812"}': "a password or key written out",
    "auth_token: " + "Q7-ab3": "a password or key written out",
    "- secret: " + "s3same": "a password or key written out",
    '{"password": ' + "12345678}": "a password or key written out",
}


@pytest.mark.parametrize(("line", "kind"), SECRETS.items())
def test_a_secret_is_named_by_kind_and_line_and_never_repeated(staged, line, kind):
    content = f"# first\n\n{line}\nlast\n".encode()

    for hold in (True, False):
        said = ask(checks.no_plaintext_secret(), staged(content, hold=hold))
        assert said == f"line 3 holds what looks like {kind}"


@pytest.mark.parametrize(
    "line",
    [
        'password = "${DB_PASSWORD}"',
        "password: ${DB_PASSWORD:-}",
        "password: <secret>",
        "password = xxxxxxxxxxxx",
        "password: ************",
        'api_key = "your-api-key-here"',
        "aws_access_key_id = AKIAIOSFODNN7EXAMPLE",
        "password: {{ vault_password }}",
        "token = os.environ['TOKEN']",
        'token = os.environ["GITHUB_TOKEN_9"]',
        "password = get_password(user1)",
        "def login(password: str) -> None:",
        "password_file: /run/secrets/db1_Password",
        "password: /run/secrets/db1_Password",
        "secret: op://vault/Item1/field",
        "max_tokens: 4096",
        "token: 123456789",
        "secretName: my-tls-secret",
        "password: changeme",
        "password:",
        "  - name: password",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----",
        "-----BEGIN CERTIFICATE-----",
        "url: postgres://app:${PASSWORD}@db/app",
        "url: http://localhost:8080/a@b",
        "self.token = response.json.Token1",
        "image: registry/app@sha256:0123456789abcdef0123456789abcdef",
        "# the password is asked for at start",
        '{"password": null}',
        '{"password": true}',
        '"password": "Password",',
        '"password": "Enter your password",',
        "password: string",
        "password=password",
        "    db_password = password",
        "password: *shared",
        "password: DB_PASSWORD",
        "password: env:DB_PASSWORD",
        "password: vault:secret/data/db1#Password",
        "password: `pass show db1`",
        "PASSWORD=$1",
        "token: my-service-token-v2",
        "secret: app-tls-01",
        "credentials: 'same-origin'",
        "token: required",
        '"token": "comment",',
        "bypass: always",
        "compass: north",
        "pass: always",
        "password: '****'",
        "password: example1",
    ],
)
def test_placeholders_references_and_code_are_not_secrets(line):
    assert first_secret([line.encode() + b"\n"]) is None


@pytest.mark.parametrize("line", ["token = request_token2", "password = other", "secret: Secret2 = load"])
def test_a_word_without_quotes_is_a_variable_in_a_program(staged, line):
    assert ask(checks.no_plaintext_secret(), staged(line.encode(), name="app.py")) is None


def test_a_value_in_quotes_is_a_secret_in_a_program_too(staged):
    line = 'password = "' + 'hunter2"'

    assert ask(checks.no_plaintext_secret(), staged(line.encode(), name="app.py"))


def test_a_secret_far_down_in_a_large_file_is_found_with_its_line(staged):
    content = b"x" * 500_000 + b"\n" + b"line\n" * 50_000 + next(iter(SECRETS)).encode() + b"\n"

    assert ask(checks.no_plaintext_secret(), staged(content, hold=False)) == (
        "line 50002 holds what looks like a private key"
    )


def test_a_signal_while_a_program_is_being_started_ends_the_program_too(monkeypatch, staged):
    import signal
    import subprocess

    started = []

    class Hurried(subprocess.Popen):
        def __init__(self, *given, **named):
            super().__init__(*given, **named)
            started.append(self)
            os.kill(os.getpid(), signal.SIGHUP)  # where nobody has the process in hand yet

    def stop(number, frame):
        raise SystemExit(128 + number)

    monkeypatch.setattr(subprocess, "Popen", Hurried)
    before = signal.signal(signal.SIGHUP, stop)
    try:
        with pytest.raises(SystemExit):
            ask(checks.command("sleep 300"), staged(b""))
        assert signal.getsignal(signal.SIGHUP) is stop
    finally:
        signal.signal(signal.SIGHUP, before)

    assert [process.returncode for process in started] == [-signal.SIGKILL]
