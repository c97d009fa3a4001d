"""Who erased the content of an effect, and when."""

from datetime import datetime

from takeback.model.effect import Effect
from takeback.model.person import person_recorded
from takeback.model.record import STORE, Kind
from takeback.storage.protocols import Journal


def redacted_by(journal: Journal, effect: Effect) -> str:
    """The end of a sentence."""
    for record in reversed(list(journal.records(run=STORE, kinds=(Kind.REDACT,)))):
        if effect.id in record.body.get("effects", ()):
            when = datetime.fromtimestamp(record.at / 1e6).astimezone()
            return f" by {person_recorded(record.body).in_words()} at {when:%Y-%m-%d %H:%M}"
    return ""
