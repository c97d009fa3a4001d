"""YAML through ruamel.yaml and back: comments and order are kept, but lines may be laid out anew."""

from typing import Any

from takeback.adapters.config.steps import Add, Drop, Put, Step
from takeback.adapters.config.yaml_edit import render
from takeback.errors import Refused


def change(text: str, step: Step) -> str:
    import io

    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    yaml: Any = YAML(typ="rt", pure=True)
    yaml.preserve_quotes = True
    yaml.width = 1 << 20
    if "\n  - " in text:
        yaml.indent(mapping=2, sequence=4, offset=2)
    try:
        document: Any = yaml.load(text)
        _carry_out(document, step, lambda value: YAML(typ="rt", pure=True).load(render(value)))  # pyright: ignore
        out = io.StringIO()
        yaml.dump(document, out)
    except (YAMLError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise Refused(
            "This place in the YAML cannot be edited by key.", hint="Write the whole file instead."
        ) from error
    new = out.getvalue()
    return new.replace("\n", "\r\n") if "\r\n" in text else new


def _carry_out(document: Any, step: Step, built: Any) -> None:
    match step:
        case Put(path, value):
            parent = _at(document, path[:-1])
            parent[_key(parent, path[-1])] = built(value)
        case Add(path, key, value, after):
            parent = _at(document, path)
            if isinstance(key, int):
                parent.insert(key, built(value))
                return
            names = [str(name) for name in parent]
            place = names.index(str(after)) + 1 if after is not None and str(after) in names else 0
            parent.insert(place, built(key), built(value))
        case Drop(path):
            parent = _at(document, path[:-1])
            del parent[_key(parent, path[-1])]


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[_key(document, key)]
    return document


def _key(container: Any, key: Any) -> Any:
    if isinstance(key, int) or key in container:
        return key
    return next(name for name in container if str(name) == str(key))
