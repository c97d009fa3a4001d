"""What the first process inside is told: what to run, and what to mount before."""

from typing import Any, NamedTuple

from takeback.sandbox.overlay import Overlay
from takeback.sandbox.rootfs import Scene


class Job(NamedTuple):
    order: (
        dict[str, Any] | None
    )  # as the caller asked, with what the small process found out; None: it will follow
    scene: Scene | None  # None: it was told, and is built


def packed(job: Job) -> tuple[Any, ...]:
    """Of plain tuples only."""
    if job.scene is None:
        return job.order, None
    scene = job.scene._replace(overlays=tuple(map(tuple, job.scene.overlays)))  # type: ignore[arg-type]
    return job.order, tuple(scene)


def unpacked(told: tuple[Any, ...]) -> Job:
    order, scene = told
    if scene is None:
        return Job(order, None)
    made = Scene(*scene)
    return Job(order, made._replace(overlays=tuple(Overlay(*one) for one in made.overlays)))
