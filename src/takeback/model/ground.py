"""What some effects touch; finds what overlaps in a time that does not grow with their number."""

from collections.abc import Iterable

from takeback.model.resource import ancestors


class Ground:
    def __init__(self) -> None:
        self._at: dict[str, str] = {}
        self._inside: dict[str, str] = {}

    def add(self, resources: Iterable[str], name: str) -> None:
        for resource in resources:
            if resource not in self._at:
                self._at[resource] = name
                for outer in ancestors(resource):
                    if outer in self._inside:
                        break  # what contains that one is known as well
                    self._inside[outer] = name

    def touched_by(self, resources: Iterable[str]) -> str:
        """The name of one that overlaps; empty if none does."""
        for resource in resources:
            if found := self.overlapping(resource):
                return found
        return ""

    def overlapping(self, resource: str) -> str:
        if found := self._at.get(resource) or self._inside.get(resource):
            return found
        return next((self._at[outer] for outer in ancestors(resource) if outer in self._at), "")

    def is_around(self, resource: str) -> bool:
        """Whether something that is touched lies in it."""
        return resource in self._inside
