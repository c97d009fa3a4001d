"""How records of format 1 are read: what they say in other words than records of today. The only reader of them.

A store keeps its old records when it is brought to a newer format, so each record is judged by itself. Format 1 said
three things only in the sentence of `why`, and decisions were read out of it. Records of today have a field for each:

| field | in | means |
|---|---|---|
| `begun` | stick | its undo was called, and whether that happened is not known |
| `given_up` | abort | it was stuck, and a person chose another way back: it is not carried out again |
| `taking_back` | close | the run of a workflow is being undone: no worker takes it |

It also had other words: the record kind `keep` (read as `accept`), `kept` for a run that is `accepted`, and `keep` for
`on_death` `accept`.

The sentences below are what was written then. They are data, not messages: never reword them.
"""

from typing import Any

from takeback.model.record import Kind

_BEGUN = "Taking it back was begun; whether that has happened is not known."
_GIVEN_UP = "It was stuck, and given up for another way back that a person chose."
_TAKING_BACK = "is being taken back"
_WORDS = {"kept": "accepted", "keep": "accept"}


def with_fields(kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
    """The body of a record of any format, with the fields of today."""
    why = body.get("why", "")
    if not why:
        return body
    if kind is Kind.STICK and why.endswith(_BEGUN):
        return {**body, "begun": True}
    if kind is Kind.ABORT and why == _GIVEN_UP:
        return {**body, "given_up": True}
    if kind is Kind.CLOSE and why == _TAKING_BACK:
        return {**body, "taking_back": True}
    return body


def word(name: str) -> str:
    """The word of today for the state of a run, and for `on_death`."""
    return _WORDS.get(name, name)
