"""Masking: one set of rules, 200 shapes that no view shows, and texts that only look like one."""

import json
import time

import pytest

from takeback.policy.secrets import MASK, masked, masked_json, masked_lines
from tests.secret_table import LOOK_ALIKES, SHAPES, of


def told(text: str, secret: str) -> str:
    """The longest piece of a secret that a reader could use; the first characters of a token name its kind."""
    pieces = [secret[at : at + 6] for at in range(max(1, len(secret) - 5))]
    return next((piece for piece in pieces if piece in text), "")


def test_there_are_200_shapes_and_100_look_alikes():
    assert len(SHAPES) >= 200
    assert len(LOOK_ALIKES) >= 100


@pytest.mark.parametrize("case", SHAPES, ids=lambda case: case.text[:30].encode("ascii", "replace").decode())
def test_a_secret_is_masked_wherever_it_stands(case):
    seen = masked(case.text)

    assert MASK in seen
    assert [told(seen, secret) for secret in case.secrets] == ["" for _ in case.secrets]
    assert masked(seen) == seen
    assert seen.count("\n") == case.text.count("\n")


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_what_only_looks_like_a_secret_stays(text):
    assert masked(text) == text
    assert masked_json({"summary": text}) == {"summary": text}


def test_what_stands_around_a_secret_stays():
    assert masked("postgres://app:" + "kJ8s-dl2@db/app is down") == f"postgres://app:{MASK}@db/app is down"
    assert masked("tool --password " + "s3cr3tX --verbose") == f"tool --password {MASK} --verbose"
    assert masked("DB_PASSWORD=" + "s3cr3tX\nDB_USER=app") == f"DB_PASSWORD={MASK}\nDB_USER=app"
    assert masked("use ghp_" + "a1B2" * 9) == f"use ghp_{MASK}"


def test_json_is_masked_by_name_by_shape_and_word_by_word():
    secret = of("abcdefghijk", 12) + "9"

    seen = masked_json(
        {
            "password": f"{secret} and more words",
            "env": [{"name": "DB_PASSWORD", "value": secret}],
            "argv": ["tool", "--token", secret, "--verbose"],
            "command": ["mysql", f"-p{secret}", "app"],
            "headers": {"Authorization": f"Bearer {secret}", "Cookie": f"a={secret}"},
            "nested": json.dumps({"api_key": secret}),
            "count": 3,
            "none": None,
            "id": "k3f9a2bq",
        }
    )

    assert secret not in json.dumps(seen)
    assert seen["argv"] == ["tool", "--token", MASK, "--verbose"]
    assert (seen["count"], seen["none"], seen["id"]) == (3, None, "k3f9a2bq")
    assert masked_json(seen) == seen


def test_the_lines_of_a_difference_are_masked_together_and_stay_apart():
    body = of("ABCDEFGHabcdefgh0123", 64)
    lines = [
        "@@ -1,3 +1,3 @@",
        " -----BEGIN " + "PRIVATE KEY-----",
        f"-{body}",
        f"+{body[::-1]}",
        " -----END PRIVATE KEY-----",
    ]

    assert masked_lines(lines) == [*lines[:2], f"-{MASK}", f"+{MASK}", lines[4]]


HOSTILE = (
    "password=", "a", "a-", "eyJ", "eyJ.", "://a:", "://", "sk-", "ghp_", "password='", 'password="', "mysql ",
    "curl -u ", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----\n", "Bearer ", "Authorization: ", "cookie: ",
    "xoxb-", "_password", "pass.", "key-", "AKIA", "secret:", "<password>", "identified by '", "\\",
    "login x password ", "=a&token", "AGE-SECRET-KEY-1", ".atlasv1.", "Q~", "dp.st.", "host:5432:", "?sig=",
    "--password ", " ", "\n", "0",
)  # fmt: skip


def test_a_hostile_line_of_a_megabyte_takes_no_more_than_a_long_text():
    for piece in HOSTILE:
        text = piece * (200_000 // len(piece))
        began = time.process_time()
        masked(text)
        once = time.process_time() - began
        assert once < 2, (piece, once)
