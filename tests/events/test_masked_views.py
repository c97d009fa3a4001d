"""Secrets are whole in the store and masked on every way out; a person at a terminal may ask for them."""

import json
import os
import subprocess
import sys
from pathlib import Path

from takeback.policy.secrets import MASK
from tests.e2e.conftest import CommandLine, surroundings
from tests.secret_table import SHAPES, mixed
from tests.world import World

SECRET = mixed("abcdefghijkmnpqr23456789", 18)


def test_undo_and_redo_of_every_shape_are_exact(world: World) -> None:
    import takeback

    before = {f"f{n}": case.text.encode() for n, case in enumerate(SHAPES)}
    for name, content in before.items():
        (world / name).write_bytes(content)
    after = {name: content[::-1] + b"\n" for name, content in before.items()}

    with takeback.open() as tb:
        with tb.run("rotate everything") as run:
            effect = run.write_all({os.fspath(world / name): content for name, content in after.items()})
            assert effect
        tb.undo(effect)
        assert {name: (world / name).read_bytes() for name in before} == before
        tb.redo()
        assert {name: (world / name).read_bytes() for name in before} == after


def test_what_a_crash_left_of_an_effect_with_secrets_is_taken_back_exactly(world: World) -> None:
    content = "\n".join(case.text for case in SHAPES).encode()
    (world / "secrets").write_bytes(content)
    program = """
import os, sys, takeback
tb = takeback.open()
run = tb.run("dies").__enter__()
run.write(sys.argv[1], b"gone")
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", program, world / "secrets"], env=surroundings(), check=False)
    import takeback

    assert (world / "secrets").read_bytes() == b"gone"
    with takeback.open() as tb:
        tb.recover()
    assert (world / "secrets").read_bytes() == content


VIEWS = (
    ("log",), ("log", "-p", "--no-color"), ("log", "--json"), ("log", "--format", "json"),
    ("show", "@"), ("show", "@", "--json"), ("diff", "@"), ("diff", "@", "--json"), ("status",), ("runs",),
    ("explain", "--", "mysql", f"-p{SECRET}"), ("undo", "@", "--dry-run"), ("events",), ("checkpoints",), ("pending",),
    ("show", f"no-{SECRET}"), ("log", "--run", f"ghp_{SECRET * 2}"),
)  # fmt: skip


def test_no_view_shows_a_secret(takeback: CommandLine, world: World) -> None:
    takeback.write(".env", f"DB_PASSWORD={SECRET}0\n")
    takeback("run", "--", "sh", "-c", f"tool --password {SECRET} ; echo API_KEY={SECRET}1 > .env")
    takeback.done("checkpoint", f"token={SECRET}")

    for words in VIEWS:
        said = takeback(*words)
        seen = f"{said.out}{said.err}"
        if words[0] in ("log", "show", "diff", "runs", "events") and said.code == 0:
            assert MASK in seen, words
        # A name that was typed just now may be said again.
        assert SECRET not in seen.replace(f"no-{SECRET}", ""), (words, said)


def test_a_person_may_ask_for_secrets_and_an_agent_may_not(takeback: CommandLine) -> None:
    takeback.write(".env", f"DB_PASSWORD={SECRET}\n")

    assert f"+DB_PASSWORD={MASK}" in takeback.done("diff").out
    assert f"+DB_PASSWORD={SECRET}" in takeback.done("diff", "--secrets").out
    refused = takeback("diff", "--secrets", CLAUDECODE="1")
    assert (refused.code, refused.out) == (3, "")
    assert "--secrets is for a person" in refused.err
    assert f"+DB_PASSWORD={MASK}" in takeback.done("diff", CLAUDECODE="1").out


def test_a_private_key_stays_hidden_line_by_line_in_a_difference(takeback: CommandLine, world: World) -> None:
    body = [mixed("ABCDEFGHabcdefgh01234567+/", 64) for _ in range(20)]
    frame = "-----BEGIN " + "PRIVATE KEY-----\n{}\n-----END " + "PRIVATE KEY-----\n"
    takeback.write("key.pem", frame.format("\n".join(body)))
    body[10] = body[10][::-1]
    takeback.write("key.pem", frame.format("\n".join(body)))

    for words in (("diff", "@~1"), ("diff", "@~1", "--json"), ("diff", "@~1", "--color", "always")):
        seen = takeback.done(*words).out
        assert "PRIVATE KEY" in seen
        assert not [line for line in body if line[8:40] in seen]


def test_what_nothing_needs_is_masked_before_it_is_recorded(takeback: CommandLine, world: World) -> None:
    takeback("run", "--", "sh", "-c", f"true tool --password {SECRET} -u admin:x; touch made")

    kept = b"".join(
        path.read_bytes() for path in Path(os.environ["TAKEBACK_STORE"]).rglob("*") if path.is_file()
    )
    assert SECRET.encode() not in kept
    assert MASK in takeback.effect()["summary"]


def test_masking_keeps_json_whole(takeback: CommandLine) -> None:
    takeback.write(".env", f'PASSWORD="{SECRET}"\nX={{"token": "{SECRET}"}}\n')

    shown = takeback.done("diff", "--json").json
    assert shown["parts"][0]["diff"].splitlines()[3:] == [f'+PASSWORD="{MASK}"', f'+X={{"token": "{MASK}"}}']
    assert json.loads(takeback.done("log", "--format", "json").out)["summary"]
