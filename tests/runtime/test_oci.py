"""What a container runs: the rules of command and args, as containerd has them."""

import pytest

from simulator.runtime.images import ImageError, catalogue, find, normalize
from simulator.runtime.model import command_line


@pytest.mark.parametrize(
    ("container", "shell", "workload"),
    [
        ({}, ["/bin/sh"], ["/w"]),
        ({"args": ["sleep", 1]}, ["sleep", "1"], ["/w", "sleep", "1"]),
        ({"command": ["/x"]}, ["/x"], ["/x"]),
        ({"command": ["/x"], "args": ["y"]}, ["/x", "y"], ["/x", "y"]),
        ({"args": []}, [], ["/w"]),
    ],
)
def test_command_and_args(
    container: dict[str, list[str]], shell: list[str], workload: list[str]
) -> None:
    images = catalogue()
    assert command_line(container, images["docker.io/library/busybox:latest"], "/w") == shell
    assert command_line(container, images["npu-testbed/vector-add:1"], "/w") == workload


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("busybox:1", "docker.io/library/busybox:1"),
        ("docker.io/library/busybox", "docker.io/library/busybox:latest"),
        ("host:5000/x", "host:5000/x:latest"),
        ("a/b@sha256:0", "a/b@sha256:0"),
    ],
)
def test_short_names(short: str, full: str) -> None:
    assert normalize(short) == full


def test_wrong_platform_and_unknown_image_are_pull_errors() -> None:
    assert find("npu-testbed/vector-add:arm64-only", "linux/arm64")
    with pytest.raises(ImageError, match="no match for platform in manifest"):
        find("npu-testbed/vector-add:arm64-only", "linux/amd64")
    with pytest.raises(ImageError, match="not found"):
        find("example.com/none", "linux/amd64")
