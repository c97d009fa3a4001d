"""Counts over time of actions, undos, approvals and response times, and their plots as SVG."""

import time
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from takeback.model.lifecycle import BIRTHS
from takeback.model.record import Kind, Record

_HOUR, _DAY = 3600, 86400
_FEW = 3 * _DAY  # seconds: a shorter time is counted by the hour
_MOST_BARS = 120


class Bar(NamedTuple):
    at: int  # seconds since 1970
    actions: int = 0
    undos: int = 0
    approved: int = 0
    denied: int = 0


class ActivityFigures(NamedTuple):
    bars: tuple[Bar, ...]
    step: int  # seconds of a bar
    waits: tuple[int, ...]  # seconds from a question to its answer, shortest first
    agents: tuple[tuple[str, int], ...]  # runs of each agent, most first


def figures(records: Iterable[Record]) -> ActivityFigures:
    """In one pass: of each effect only the time of its first record is held, and only if it waited for a person."""
    hours: dict[int, list[int]] = {}
    asked: dict[str, int] = {}
    born: set[str] = set()
    waits: list[int] = []
    agents: dict[str, int] = {}
    for record in records:
        counts = hours.setdefault(record.at // 1_000_000 // _HOUR, [0, 0, 0, 0])
        if record.kind in BIRTHS:
            if record.kind is Kind.PROPOSE:
                asked[record.effect] = record.at
                born.add(record.effect)
            elif record.effect in born:
                continue
            counts[1 if record.body.get("undoes") else 0] += 1
        elif record.kind is Kind.DECIDE:
            counts[2 if record.body.get("approved") else 3] += 1
            if record.effect in asked:
                waits.append((record.at - asked.pop(record.effect)) // 1_000_000)
        elif record.kind is Kind.OPEN and "agent" in record.body:
            name = str(record.body["agent"]) or "(none)"
            agents[name] = agents.get(name, 0) + 1
    step = _step(hours)
    most_first = sorted(agents.items(), key=lambda one: (-one[1], one[0]))
    return ActivityFigures(_bars(hours, step), step, tuple(sorted(waits)), tuple(most_first))


def _step(hours: dict[int, list[int]]) -> int:
    span = (max(hours) - min(hours) + 1) * _HOUR if hours else 0
    step = _HOUR if span <= _FEW else _DAY
    while span > step * _MOST_BARS:
        step *= 2
    return step


def _bars(hours: dict[int, list[int]], step: int) -> tuple[Bar, ...]:
    summed: dict[int, list[int]] = {}
    for hour, counts in hours.items():
        bar = summed.setdefault(hour * _HOUR // step * step, [0, 0, 0, 0])
        for at, count in enumerate(counts):
            bar[at] += count
    if not summed:
        return ()
    return tuple(
        Bar(at, *summed.get(at, (0, 0, 0, 0))) for at in range(min(summed), max(summed) + step, step)
    )


# As pictures. The colours are classes, which the page sets for a light and a dark screen.

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 720, 180, 44, 22


def bars_svg(title: str, bars: Sequence[tuple[str, Sequence[tuple[str, int]]]]) -> str:
    """Bars on top of each other: for each its label, and the class and height of each part."""
    top = max((sum(height for _, height in parts) for _, parts in bars), default=0) or 1
    room, tall = _WIDTH - _LEFT, _HEIGHT - _BOTTOM - 10
    each = room / max(len(bars), 1)
    drawn: list[str] = []
    for at, (label, parts) in enumerate(bars):
        y = float(_HEIGHT - _BOTTOM)
        total = ", ".join(f"{height:,} {name}" for name, height in parts if height)
        for name, height in parts:
            if height:
                size = height / top * tall
                y -= size
                drawn.append(
                    f'<rect class="{name}" x="{_LEFT + at * each + each * 0.1:.1f}" y="{y:.1f}" '
                    f'width="{each * 0.8:.1f}" height="{size:.1f}"><title>{escape(label)}: {total}</title></rect>'
                )
    drawn += _axis(top, tall)
    if bars:
        drawn += [
            f'<text x="{_LEFT}" y="{_HEIGHT - 6}">{escape(bars[0][0])}</text>',
            f'<text x="{_WIDTH}" y="{_HEIGHT - 6}" text-anchor="end">{escape(bars[-1][0])}</text>',
        ]
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(drawn)}</svg>'


def _axis(top: int, tall: int) -> list[str]:
    base = _HEIGHT - _BOTTOM
    lines = [f'<line class="axis" x1="{_LEFT}" y1="{base}" x2="{_WIDTH}" y2="{base}"/>']
    for share in (0.5, 1):
        y = base - tall * share
        value = top * share
        text = f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
        lines.append(f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH}" y2="{y:.1f}"/>')
        lines.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    return lines


def over_time(found: ActivityFigures, *names: str) -> list[tuple[str, list[tuple[str, int]]]]:
    form = "%Y-%m-%d %H:%M" if found.step < _DAY else "%Y-%m-%d"
    return [
        (time.strftime(form, time.gmtime(bar.at)), [(name, getattr(bar, name)) for name in names])
        for bar in found.bars
    ]


_WAITS = (
    (60, "under 1 min"),
    (300, "1-5 min"),
    (900, "5-15 min"),
    (3600, "15-60 min"),
    (14400, "1-4 h"),
    (86400, "4-24 h"),
)


def waits_in_groups(waits: Sequence[int]) -> list[tuple[str, list[tuple[str, int]]]]:
    groups = [(label, 0) for _, label in _WAITS] + [("over 1 day", 0)]
    for seconds in waits:
        at = next((at for at, (limit, _) in enumerate(_WAITS) if seconds < limit), len(_WAITS))
        groups[at] = (groups[at][0], groups[at][1] + 1)
    return [(label, [("answers", count)]) for label, count in groups]


def median(waits: Sequence[int]) -> int:
    return waits[len(waits) // 2] if waits else 0
