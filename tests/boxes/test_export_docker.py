"""An image made of a box, in a real Docker engine of its own. Needs `tools/set-up bench`."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from takeback.errors import Failed
from takeback.runs.run import Run
from tests.bench.boxes import docker_of_our_own, plant_root

pytestmark = [pytest.mark.root, pytest.mark.long]


def test_the_image_shows_what_the_box_showed(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    plant_root(str(root))
    (root / "etc" / "removed").write_text("x")
    # The path of a socket is short.
    with (
        TemporaryDirectory(prefix="tb-") as short,
        docker_of_our_own(f"{short}/d") as docker,
        run.sandbox(root) as box,
    ):
        assert docker, "dockerd did not start"
        monkeypatch.setenv("DOCKER_HOST", docker.host)
        box.run("mkdir /made; echo hello > /made/file; ln -s file /made/link; rm /etc/removed")
        tool = "/bin/busybox"
        box.run(f"cd /made; {tool} ln file twin; {tool} chown 12:34 file; {tool} chmod 4750 file")
        told = box.export("docker:takeback-test:1")
        assert told.startswith("sha256:")
        (image,) = json.loads(docker.call("image", "inspect", "takeback-test:1"))
        assert image["Id"] == told
        script = f"cd /made; {tool} stat -c '%n %a %u %g %h' file link twin; cat link; {tool} ls /etc"
        wanted = box.run(script).stdout.decode()
        shown = docker.call("run", "--rm", "--network", "none", "takeback-test:1", "/bin/sh", "-c", script)
        # Docker puts files of its own into /etc.
        own = {"hostname", "hosts", "mtab", "resolv.conf"}
        assert [line for line in shown.splitlines() if line not in own] == wanted.splitlines()
        assert "file 4750 12 34 2" in shown and "removed" not in shown
        with pytest.raises(Failed, match="did not take the image"):
            box.export("docker:No Such Name")
