"""What the first process inside is told: what to run, and what to mount before."""

from typing import Any, NamedTuple

from takeback.sandbox.overlay import Overlay
from takeback.sandbox.rootfs import Scene


class Job(NamedTuple):
    order: dict[str, Any]  # as the caller asked, with what the small process found out
    scene: Scene


def packed(job: Job) -> tuple[Any, ...]:
    """Of plain tuples only."""
    scene = job.scene._replace(overlays=tuple(map(tuple, job.scene.overlays)))  # type: ignore[arg-type]
    return job.order, tuple(scene)


def unpacked(told: tuple[Any, ...]) -> Job:
    order, scene = told
    made = Scene(*scene)
    return Job(order, made._replace(overlays=tuple(Overlay(*one) for one in made.overlays)))
