"""Alerts, sent to the receivers of proposals: once when one opens, once when its cause is gone."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from takeback.api.notices import (
    DESKTOP,
    MAIL,
    Notice,
    as_line,
    post,
    receivers_of,
    send_mail,
    show_on_desktop,
    until_next,
)
from takeback.api.store import OpenStore
from takeback.audit.alerts import Alert, AlertChange, Severity, alert_json, alerts, changes
from takeback.errors import TakebackError
from takeback.model.approver import People
from takeback.storage import disk

TOLD = "alerts-told.json"  # in the store's directory on this machine: which receiver knows of which alert


class Receiver(NamedTuple):
    """What one has heard of and not heard the end of, and when it is tried again after a failure."""

    known: Mapping[str, Alert]
    tries: int = 0
    next: int = 0  # microseconds since 1970; 0: nothing failed


class _Book(NamedTuple):
    looked: int
    receivers: Mapping[str, Receiver]


def tell_alerts(opened: OpenStore, people: People, at: int, each: int) -> Iterator[Notice]:
    """For a caller that is alone at the outbox. Noted after it was sent: killed in between, it is sent once more."""
    book = _read(opened.store.path)
    if 0 <= at - book.looked < each:
        return
    found = alerts(opened.store, at)
    receivers = {name: book.receivers.get(name, Receiver({})) for name in receivers_of(people)}
    for name, receiver in receivers.items():
        if receiver.next > at:
            continue
        for change in changes(receiver.known, found):
            trouble = _sent(people, name, change)
            known = {id: one for id, one in receiver.known.items() if id != change.alert.id}
            if trouble:
                receiver = Receiver(receiver.known, receiver.tries + 1, at + until_next(receiver.tries))
            else:
                receiver = Receiver(known | ({change.alert.id: change.alert} if change.is_open else {}))
            receivers[name] = receiver
            _write(opened.store.path, _Book(at, receivers))
            yield Notice(change.alert.effect, name, trouble, alert=change.alert.id)
            if trouble:
                break
        else:
            receivers[name] = Receiver(receiver.known)
    if each or receivers != book.receivers:
        _write(opened.store.path, _Book(at, receivers))


def next_of_alerts(opened: OpenStore, names: Iterable[str]) -> list[int]:
    book = _read(opened.store.path)
    return [one.next for name in names if (one := book.receivers.get(name)) and one.next]


def _sent(people: People, name: str, change: AlertChange) -> str:
    """Why it did not arrive; empty if it did."""
    alert = change.alert
    title = f"takeback: {alert.severity.value}" if change.is_open else "takeback: over"
    lines = [alert.says, *([alert.hint] if alert.hint and change.is_open else [])]
    text = "".join(f"{as_line(line)}\n" for line in lines)
    try:
        if name == MAIL:
            send_mail(people.mail, text, f"{title}: {alert.says}")
        elif name == DESKTOP:
            show_on_desktop(title, text)
        else:
            hook = next(one for one in people.webhooks if one.name == name)
            event = "alert-opened" if change.is_open else "alert-closed"
            code, _ = post(
                hook, json.dumps({"takeback": "alert 1", "event": event, **alert_json(alert)}).encode()
            )
            return "" if 200 <= code < 300 else f"{hook.url} answered {code}"
    except (OSError, TakebackError, ValueError) as error:
        return str(error) or type(error).__name__
    return ""


# The note of what each of them knows.


def _read(store: str) -> _Book:
    """One that cannot be read is as none: then each receiver hears of what is open once more."""
    try:
        with open(os.path.join(store, TOLD), encoding="utf-8") as file:
            looked, receivers = json.load(file)
        return _Book(
            int(looked),
            {
                name: Receiver({one[0]: _alert(one) for one in known}, tries, next)
                for name, (known, tries, next) in receivers.items()
            },
        )
    except (OSError, ValueError, TypeError, AttributeError, IndexError):
        return _Book(0, {})


def _alert(fields: list[str]) -> Alert:
    alert = Alert._make(fields)
    return alert._replace(severity=Severity(alert.severity))


def _write(store: str, book: _Book) -> None:
    receivers = {
        name: [[list(alert) for alert in one.known.values()], one.tries, one.next]
        for name, one in book.receivers.items()
    }
    disk.write_file(os.path.join(store, TOLD), json.dumps([book.looked, receivers]).encode())
