"""A plugin of another language: Go, with the official v1beta1 package, on real sockets."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fake_kubelet import actions
from fake_kubelet.service import KubeletService

SOURCE = Path(__file__).parent / "gostub"
R = "example.com/go"
GO = shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin")

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(GO is None, reason="no Go on this machine (apt-get install golang-go)"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("gostub")
    shutil.copytree(SOURCE, place / "source")
    environment = {**os.environ, "CGO_ENABLED": "0"}

    def go(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(GO), *words],
            cwd=place / "source",
            env=environment,
            capture_output=True,
            text=True,
        )

    fetched = go("mod", "download")
    if fetched.returncode != 0:
        pytest.skip(f"Go modules cannot be fetched here: {fetched.stderr.strip()[-200:]}")
    built = go("build", "-o", str(place / "gostub"), ".")
    assert built.returncode == 0, built.stderr
    return place / "gostub"


def pod(name: str) -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": {R: "1"}}}
    return {
        "metadata": {"name": name},
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }


@pytest.mark.parametrize("version", ["1.19", "1.24", "1.28", "1.32", "1.36", "1.37"])
def test_the_whole_life_of_a_go_plugin(program: Path, short_path: Path, version: str) -> None:
    said: list[str] = []

    async def run() -> None:
        kubelet = KubeletService(short_path, version=version)
        await kubelet.start()
        process = await asyncio.create_subprocess_exec(
            str(program),
            str(kubelet.shell.sockets.directory),
            stdout=asyncio.subprocess.PIPE,
        )

        async def listen() -> None:
            assert process.stdout is not None
            async for line in process.stdout:
                said.append(line.decode().strip())

        listener = asyncio.create_task(listen())
        try:
            assert await kubelet.until(lambda: kubelet.counts(R) == (2, 2), 30)
            kubelet.create_pod(pod("user"))
            assert await kubelet.until(lambda: kubelet.phase("user") == "Running")
            given = kubelet.given("user", "main")
            assert given is not None
            is_asked = int(version[2:]) >= 25  # before, options come with Register only
            if is_asked:
                assert given.envs == {"IDS": "go-1"}
            assert [device.container_path for device in given.devices] == ["/dev/go"]
            process.send_signal(signal.SIGUSR1)
            assert await kubelet.until(lambda: kubelet.counts(R) == (2, 1))
            kubelet.perform(actions.CutStream(resource=R))
            assert await kubelet.until(lambda: kubelet.counts(R) == (2, 0))
        finally:
            process.terminate()
            assert await process.wait() == 0
            await listener
            await kubelet.close()
        allocated = given.envs["IDS"]
        assert ("options" in said) is is_asked
        assert "registered <nil>" in said
        assert said.count("watch") == 1
        assert f"allocate {allocated}" in said
        assert ("preferred 2 1" in said) is is_asked
        assert (f"pre-start {allocated}" in said) is is_asked
        assert "stream-ended" in said

    asyncio.run(run())
