"""Who looks at the console, what they ask for, and what a page answers."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.errors import Misuse
from takeback.frontends.console.visitor import Visitor

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.frontends.console.entrance import Entrance
    from takeback.frontends.console.figures import SlowFigures
    from takeback.frontends.console.jobs import Jobs

_LONGEST = 4_000  # characters of one field of a form or an address


class Console(NamedTuple):
    """What all pages share."""

    tb: "Takeback"
    entrance: "Entrance"
    jobs: "Jobs"
    figures: "SlowFigures"


class Visit(NamedTuple):
    """One request of someone who is signed in."""

    console: Console
    visitor: Visitor
    path: Mapping[str, str]  # the parts of the address that have a name
    query: Mapping[str, Sequence[str]]
    form: Mapping[str, Sequence[str]]
    is_part: bool = False  # htmx asks for a part of a page

    @property
    def tb(self) -> "Takeback":
        return self.console.tb

    def word(self, name: str) -> str:
        """One field of the form, or else of the address; "" where it is missing."""
        found = (self.form.get(name) or self.query.get(name) or ("",))[-1].strip()
        return _refused_if_odd(name, found)

    def words(self, name: str) -> list[str]:
        return [_refused_if_odd(name, one) for one in self.form.get(name) or self.query.get(name) or ()]

    def number(self, name: str) -> int:
        word = self.word(name)
        if word and not (word.isascii() and word.isdigit() and len(word) < 16):
            raise Misuse(f"{name} is a number, not {word!r}.", hint="Go back and follow the link again.")
        return int(word or 0)


def _refused_if_odd(name: str, value: str) -> str:
    if len(value) > _LONGEST:
        raise Misuse(f"{name} is longer than {_LONGEST:,} characters.", hint="Nothing was changed.")
    if any("\ud800" <= one <= "\udfff" or one == "\0" for one in value):
        raise Misuse(f"{name} is no text.", hint="Nothing was changed.")
    return value


class Shown(NamedTuple):
    """A page, or a part of one."""

    template: str
    data: Mapping[str, Any]
    status: int = 200


class Redirected(NamedTuple):
    """The browser is sent to another page of ours."""

    to: str


Answer = Shown | Redirected
