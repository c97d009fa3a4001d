"""No GPL among what a user installs: the dependencies of takeback and its extras, and theirs in turn."""

import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.markers import default_environment
from packaging.requirements import Requirement

# LGPL is not meant: a library under it may be used from a program under any licence.
GPL = re.compile(r"\bA?GPL|(?:Affero|GNU) General Public", re.IGNORECASE)


def licences(package: Distribution) -> list[str]:
    """What the package says of itself: the expression if there is one, else classifiers, else free text."""
    said = package.metadata
    if expression := said.get("License-Expression"):
        return re.split(r"\s+OR\s+", expression.strip("()"))
    classifiers = [line for line in said.get_all("Classifier", []) if line.startswith("License ::")]
    text = (said.get("License") or "").strip()
    return classifiers or ([text.splitlines()[0]] if text else [])


def needed(name: str, extras: frozenset[str], found: dict[str, Distribution]) -> None:
    package = distribution(name)
    environment = {key: str(value) for key, value in default_environment().items()}
    for line in package.requires or []:
        requirement = Requirement(line)
        wanted = requirement.marker is None or any(
            requirement.marker.evaluate(environment | {"extra": extra}) for extra in extras | {""}
        )
        if wanted and requirement.name not in found:
            found[requirement.name] = distribution(requirement.name)
            needed(requirement.name, frozenset(requirement.extras), found)


def main() -> int:
    found: dict[str, Distribution] = {}
    own = distribution("takeback")
    try:
        needed("takeback", frozenset(own.metadata.get_all("Provides-Extra", [])), found)
    except PackageNotFoundError as missing:
        print(
            f"check_licences: {missing.name} is not installed, so its licence cannot be read.",
            file=sys.stderr,
        )
        return 1
    wrong = 0
    for name, package in sorted(found.items()):
        said = licences(package)
        allowed = [licence for licence in said if not GPL.search(licence)]
        if not allowed:
            wrong += 1
            print(f"check_licences: {name} is {' and '.join(said) or 'without a licence'}.", file=sys.stderr)
        else:
            print(f"{name} {package.version}: {' · '.join(said)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
