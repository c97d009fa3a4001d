"""The page of policy files names all that a file can say."""

import re

from takeback.policy import parse
from tests.docs.pages import DOCS

PAGE = DOCS / "reference" / "policy.md"


def test_every_key_that_a_rule_can_match_is_on_the_page() -> None:
    text = PAGE.read_text()
    named = set(re.findall(r"`(\w+)`", text.partition("## What a rule matches")[2]))

    assert set(parse.MATCHES) <= named
    assert {f"`{one}`" for one in parse.ANSWERS} <= set(re.findall(r"`\w+`", text))
    assert all(f"`{one}`" in text for one in ("name", "match", "then", "place", "asks", "why", "when"))


def test_every_fact_that_a_condition_can_ask_for_is_on_the_page() -> None:
    from takeback.policy.decide import facts_of
    from takeback.policy.rules import Subject

    said = next(re.finditer(r"It knows `([^`]+)`", PAGE.read_text()))[1].split()

    assert set(said) == (set(facts_of(Subject())) - {"whole"}) | {"labels"}
