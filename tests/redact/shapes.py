"""Fifty shapes in which a store can hold a text: each makes something and returns what must not be found afterwards."""

import json
import os
import random
import sqlite3
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import takeback
from takeback.runs.run import Run

SECRET = "hunter2-Xk9QzP"
Shape = Callable[[takeback.Takeback, Run, Path], str]
SHAPES: dict[str, Shape] = {}


def shape(make: Shape) -> Shape:
    SHAPES[make.__name__] = make
    return make


def written(content: str | bytes, name: str = "file") -> Shape:
    def make(tb: takeback.Takeback, run: Run, world: Path) -> str:
        run.write(world / name, content)
        return SECRET

    return make


def overwritten(content: str | bytes, after: str | bytes = "another") -> Shape:
    def make(tb: takeback.Takeback, run: Run, world: Path) -> str:
        (world / "old").write_bytes(content if isinstance(content, bytes) else content.encode())
        run.write(world / "old", after)
        return SECRET

    return make


def _noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


_RAW = SECRET.encode()
SHAPES |= {
    "the whole content": written(SECRET),
    "at the beginning": written(SECRET + " and more"),
    "at the end": written("something = " + SECRET),
    "in a line of many": written("a line\n" * 400 + SECRET + "\n" + "a line\n" * 400),
    "in content that compresses": written(b"\0" * 50_000 + _RAW + b"\0" * 50_000),
    "in noise that does not": written(_noise(30_000) + _RAW + _noise(31_000)),
    "in a pack": written(_noise(90_000) + _RAW + _noise(91_000)),
    "in a large pack": written(_noise(700_000) + _RAW),
    "across two pieces": written(_noise((4 << 20) - 5) + _RAW + _noise(100)),
    "in the second piece": written(_noise(5 << 20) + _RAW),
    "in a file with a hole": written(b"\0" * (9 << 20) + _RAW),
    "between NUL bytes": written(b"\0" + _RAW + b"\0"),
    "in what was overwritten": overwritten("pw=" + SECRET),
    "in what was overwritten, large": overwritten(_noise(90_000) + _RAW, _noise(90_001)),
    "in text that is no UTF-8": written(b"\xff\xfe " + _RAW + b" \xff"),
    "as UTF-16": written(SECRET.encode("utf-16-le")),
    "in JSON": written(json.dumps({"password": SECRET})),
    "in a value that is JSON in JSON": written(json.dumps({"config": json.dumps({"password": SECRET})})),
    "in base64": written(b64encode(b"user:" + _RAW)),
    "in base64, shifted by one": written(b64encode(b"user1:" + _RAW + b"!")),
    "in base64, shifted by two": written(b64encode(b"user12:" + _RAW)),
    "in hexadecimal": written(_RAW.hex()),
    "in a URL": written(f"https://user:{SECRET}@example.org/"),
    "in the name of a file": written("nothing", f"a {SECRET}.txt"),
    "in a shell script": written(f"#!/bin/sh\nexport TOKEN='{SECRET}'\n", "run.sh"),
}


@shape
def in_a_chain_of_differences(tb: takeback.Takeback, run: Run, world: Path) -> str:
    base = "line of the file\n" * 500
    for text in (base, base + SECRET, base + SECRET + "1", base + "2", base + "3"):
        run.write(world / "chain", text)
    return SECRET


@shape
def below_differences_that_stay(tb: takeback.Takeback, run: Run, world: Path) -> str:
    """What others are a difference to goes, and they stay readable."""
    base = _noise(3_000)
    run.write(world / "below", base + _RAW)
    run.write(world / "elsewhere", "x")
    for number in range(3):
        run.write(world / f"other {number}", base + bytes([number]))
    return SECRET


@shape
def in_the_name_of_a_run(tb: takeback.Takeback, run: Run, world: Path) -> str:
    with tb.run(f"deploy with {SECRET}") as other:
        other.write(world / "of a named run", "x")
    return SECRET


@shape
def in_the_name_of_an_agent(tb: takeback.Takeback, run: Run, world: Path) -> str:
    with tb.run("deploy", agent=f"bot {SECRET}") as other:
        other.write(world / "of an agent", "x")
    return SECRET


@takeback.action
def sign_in(user: str, password: str, *, key: str = "") -> dict[str, str]:
    return {"session": f"of {user} with {password}"}


@sign_in.undo
def sign_out(receipt: dict[str, str], user: str, password: str) -> None:
    pass


@shape
def in_the_arguments_and_the_receipt_of_a_call(tb: takeback.Takeback, run: Run, world: Path) -> str:
    run.call(sign_in, user="ann", password=SECRET)
    return SECRET


@shape
def in_a_checkpoint(tb: takeback.Takeback, run: Run, world: Path) -> str:
    run.checkpoint("here", state={"token": SECRET})
    return SECRET


@shape
def in_a_long_checkpoint(tb: takeback.Takeback, run: Run, world: Path) -> str:
    run.checkpoint("here", state={"token": SECRET, "context": "words " * 2000})
    return SECRET


@shape
def in_the_label_of_a_checkpoint(tb: takeback.Takeback, run: Run, world: Path) -> str:
    run.checkpoint(f"before {SECRET}", state={})
    return SECRET


@shape
def in_a_key(tb: takeback.Takeback, run: Run, world: Path) -> str:
    run.write(world / "keyed", "x", key=f"key-{SECRET}")
    return SECRET


@shape
def in_the_name_of_a_directory(tb: takeback.Takeback, run: Run, world: Path) -> str:
    (world / SECRET).mkdir()
    run.write(world / SECRET / "inside", "x")
    return SECRET


@shape
def in_the_name_of_a_project(tb: takeback.Takeback, run: Run, world: Path) -> str:
    (world / f"project {SECRET}" / ".git").mkdir(parents=True)
    run.write(world / f"project {SECRET}" / "inside", "x")
    return SECRET


@shape
def in_a_directory_that_was_removed(tb: takeback.Takeback, run: Run, world: Path) -> str:
    (world / "tree" / "deep").mkdir(parents=True)
    (world / "tree" / "deep" / "secret").write_text(SECRET)
    (world / "tree" / "plain").write_text("plain")
    run.delete(world / "tree")
    return SECRET


@shape
def in_a_name_below_a_directory_that_was_removed(tb: takeback.Takeback, run: Run, world: Path) -> str:
    (world / "named").mkdir()
    (world / "named" / SECRET).write_text("plain")
    run.delete(world / "named")
    return SECRET


@shape
def in_a_symbolic_link(tb: takeback.Takeback, run: Run, world: Path) -> str:
    run.symlink(world / "link", f"/etc/{SECRET}")
    return SECRET


@shape
def in_the_new_name_of_a_move(tb: takeback.Takeback, run: Run, world: Path) -> str:
    (world / "before").write_text("x")
    run.move(world / "before", world / SECRET)
    return SECRET


@shape
def in_several_files_of_one_effect(tb: takeback.Takeback, run: Run, world: Path) -> str:
    run.write_all({world / "one": "1", world / "two": SECRET, world / "three": "3"})
    return SECRET


@shape
def in_a_value_of_a_configuration(tb: takeback.Takeback, run: Run, world: Path) -> str:
    (world / "app.json").write_text('{"port": 80}')
    run.edit_config(world / "app.json", {"/password": SECRET})
    return SECRET


@shape
def in_a_key_of_a_configuration(tb: takeback.Takeback, run: Run, world: Path) -> str:
    (world / "app.toml").write_text("port = 80\n")
    run.edit_config(world / "app.toml", {f"/{SECRET}": True})
    return SECRET


@shape
def in_what_was_undone(tb: takeback.Takeback, run: Run, world: Path) -> str:
    effect = run.write(world / "undone", f"pw = {SECRET}")
    assert effect
    run.undo(effect)
    return SECRET


@shape
def in_a_watched_directory(tb: takeback.Takeback, run: Run, world: Path) -> str:
    (world / "watched").mkdir()
    (world / "watched" / "before").write_text(SECRET)
    with run.watch(world / "watched"):
        (world / "watched" / "before").write_text("x")
        (world / "watched" / SECRET).write_text(f"new {SECRET}")
    return SECRET


@shape
def in_what_was_forgotten(tb: takeback.Takeback, run: Run, world: Path) -> str:
    with tb.run("short") as other:
        effect = other.write(world / "forgotten", f"pw = {SECRET}")
    assert effect
    tb.forget(effect)
    return SECRET


@shape
def in_a_text_of_other_letters(tb: takeback.Takeback, run: Run, world: Path) -> str:
    text = "größer-als-日本語-🎂"
    run.write(world / "unicode", f"pw = {text}")
    run.checkpoint("letters", state={"token": text})
    run.write(world / f"name {text}", "x")
    return text


@shape
def in_a_text_with_quotes(tb: takeback.Takeback, run: Run, world: Path) -> str:
    text = 'a "quoted\\back\tslash" text'
    run.write(world / "quotes", json.dumps({"pw": text}))
    run.checkpoint("quotes", state={"token": text})
    return text


@shape
def in_a_short_text(tb: takeback.Takeback, run: Run, world: Path) -> str:
    run.write(world / "short", "pin: Zq#7")
    return "Zq#7"


@shape
def in_an_extended_attribute(tb: takeback.Takeback, run: Run, world: Path) -> str:
    path = world / "attributed"
    path.write_text("x")
    os.setxattr(path, "user.token", _RAW)
    run.write(path, "y")
    return SECRET


@shape
def in_a_long_text(tb: takeback.Takeback, run: Run, world: Path) -> str:
    text = "-----BEGIN KEY-----" + quote(_noise(900)) + "-----END KEY-----"
    run.write(world / "long", f"before\n{text}\nafter")
    return text


@shape
def in_a_sqlite_file(tb: takeback.Takeback, run: Run, world: Path) -> str:
    with sqlite3.connect(world / "app.db") as database:
        database.execute("CREATE TABLE t (v TEXT)")
        database.execute("INSERT INTO t VALUES (?)", (SECRET,))
    database.close()
    run.delete(world / "app.db")
    return SECRET
