"""`completion` prints a script for a shell; the script asks the hidden `_complete` what could come next."""

from argparse import ArgumentParser
from collections.abc import Iterator
from itertools import pairwise

import takeback.api
from takeback.errors import TakebackError
from takeback.frontends.cli.command import COLOURS, Asked, Command, Does, command_named, parser_of, positional
from takeback.frontends.cli.command import COMMANDS as ALL
from takeback.frontends.cli.output.screen import clean, put
from takeback.model.ids import short
from takeback.storage.protocols import Query
from takeback.storage.sqlite.store import default_path, exists

_BASH = """\
_takeback() {
    local line place
    COMPREPLY=()
    case "${COMP_WORDS[1]}" in run | explain)
        for ((place = 2; place < COMP_CWORD; place++)); do
            if [[ ${COMP_WORDS[place]} == -- ]] && declare -F _command_offset >/dev/null; then
                _command_offset $((place + 1))  # what that command completes itself
                return
            fi
        done
    esac
    while IFS= read -r line; do COMPREPLY+=("${line%%$'\\t'*}"); done < <(
        "${COMP_WORDS[0]}" _complete -- "$COMP_CWORD" "${COMP_WORDS[@]}" 2>/dev/null
    )
}
complete -o default -o bashdefault -F _takeback takeback
"""

_ZSH = """\
#compdef takeback
_takeback() {
    local -a found
    local line place=${words[(ie)--]}
    if [[ ${words[2]} == (run|explain) ]] && ((place < CURRENT)); then
        shift $place words
        ((CURRENT -= place))
        _normal
        return
    fi
    for line in "${(@f)$("${words[1]}" _complete -- $((CURRENT - 1)) "${words[@]}" 2>/dev/null)}"; do
        [[ -n $line ]] && found+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
    done
    if (( ${#found} )); then _describe takeback found; else _files; fi
}
compdef _takeback takeback
"""

_FISH = """\
function __takeback_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l place (contains -i -- -- $words)
    if test -n "$place"; and contains -- $words[2] run explain
        complete -C (string join -- ' ' $words[(math $place + 1)..])
        return
    end
    takeback _complete -- (math (count $words) - 1) $words 2>/dev/null
end
complete -c takeback -a '(__takeback_complete)'
"""

_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
_MOST = 30
# What a position takes; everything else is a path, which the shell completes itself.
_EFFECTS = ("show", "diff", "undo", "redo", "accept", "apply", "discard", "pin", "unpin", "forget")
_ONE_EFFECT = ("show", "diff", "redo")
_EVERYWHERE = (
    "--help", "--version", "--store", "--json", "--quiet", "--color", "--no-color", "--no-pager",
)  # fmt: skip
_OPTION_VALUES = {"--run": "runs", "--to": "checkpoints", "--needs": "effects"}
_COMMANDS_OF_OTHERS = ("run", "explain")  # what follows `--` is a command line of its own


def _completion(asked: Asked) -> int:
    put(_SCRIPTS[asked.options.shell], end="")
    return 0


def _complete(asked: Asked) -> int:
    """One candidate a line, with a tab and a few words about it."""
    words: list[str] = asked.options.words[: asked.options.place + 1]
    current = words.pop() if len(words) > asked.options.place else ""
    try:
        for value, told in _candidates(words[1:], current):
            if value.startswith(current):
                put(f"{value}\t{told}")
    except TakebackError:
        return 0  # a store that cannot be opened has nothing to offer, and a prompt is no place for an error
    return 0


def _candidates(before: list[str], current: str) -> Iterator[tuple[str, str]]:
    store = next((word for last, word in pairwise(before) if last == "--store"), "") or default_path()
    name = next((word for last, word in pairwise(["", *before]) if word in ALL and last != "--store"), "")
    last = before[-1] if before else ""
    if "--" in before and name in _COMMANDS_OF_OTHERS:
        return  # the shell knows that command, we do not
    if last in _OPTION_VALUES:
        yield from _of_kind(_OPTION_VALUES[last], store)
    elif chosen := _choices(name, before, last):
        yield from ((one, "") for one in chosen)
    elif not name and not current.startswith("-"):
        yield from ((known, entry.help) for known, entry in ALL.items() if entry.group)
        yield from (("help", "explain a command"), ("version", "print the version"))
    elif current.startswith("-"):
        yield from _options(name, before)
    elif name == "completion":
        yield from ((shell, "") for shell in sorted(_SCRIPTS))
    elif name in ALL and (parts := command_named(name).parts) and not _positions(before, name):
        yield from ((part, told.help) for part, told in parts.items())
    elif name in _EFFECTS and not (name in _ONE_EFFECT and _positions(before, name)):
        yield from _of_kind("effects", store)


def _choices(name: str, before: list[str], last: str) -> tuple[str, ...]:
    """The values that an option takes, where it takes only certain ones."""
    if not last.startswith("-"):
        return ()
    if name not in ALL:
        return COLOURS if last == "--color" else ()
    found = next((one for one in _parser(name, before)._actions if last in one.option_strings), None)  # pyright: ignore[reportPrivateUsage]
    return tuple(map(str, found.choices)) if found and found.choices else ()


def _parser(name: str, before: list[str]) -> ArgumentParser:
    command = command_named(name)
    part = next((word for word in before[before.index(name) + 1 :] if word in command.parts), "")
    return parser_of(f"{name} {part}".strip(), command)


def _positions(before: list[str], name: str) -> int:
    after = before[before.index(name) + 1 :]
    return sum(1 for word in after if not word.startswith("-"))


def _options(name: str, before: list[str]) -> Iterator[tuple[str, str]]:
    if name not in ALL:
        yield from ((option, "") for option in _EVERYWHERE)
        return
    for action in _parser(name, before)._actions:  # pyright: ignore[reportPrivateUsage]  # argparse has no public way to ask
        yield from (
            (option, action.help or "") for option in action.option_strings if option.startswith("--")
        )


def _of_kind(kind: str, store: str) -> Iterator[tuple[str, str]]:
    """Looking only: what a crash left is not settled because someone pressed Tab."""
    if not exists(store):
        return
    with takeback.api.open(store, recover=False) as tb:
        if kind == "runs":
            named = {clean(info.name): short(info.id) for info in tb.runs()[-_MOST:]}
            yield from ((name, id) for name, id in reversed(named.items()))
        elif kind == "checkpoints":
            yield from (
                (clean(point.label), short(point.run)) for point in reversed(tb.checkpoints()[-_MOST:])
            )
        else:
            for effect in tb.store.journal.effects(Query(newest=True, limit=_MOST)):
                yield short(effect.id), f"{effect.state.value}: {clean(effect.change.summary)}"


_SHELL = positional("shell", "SHELL", "bash, fish or zsh", choices=sorted(_SCRIPTS))
_LINE = (positional("place", "N", "", type=int), positional("words", "WORD", "", nargs="..."))
COMMAND = Command(_completion, (_SHELL,), does=Does.LOOKS)
COMPLETE = Command(_complete, _LINE, does=Does.LOOKS)
