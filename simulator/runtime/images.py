"""Local images: names, platforms, what runs inside. Pure; data in `data/images.toml`."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Literal


class ImageError(Exception):
    """The image cannot be used here; the text is what containerd answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One local image."""

    name: str
    platforms: tuple[str, ...]
    program: Literal["shell", "vector-add", "host"]
    cann: str = ""
    needs_driver: str = ""


@functools.cache
def catalogue() -> dict[str, Image]:
    text = resources.files(__package__).joinpath("data/images.toml").read_text()
    return {
        name: Image(
            name=name,
            platforms=tuple(row["platforms"]),
            program=row["program"],
            cann=row.get("cann", ""),
            needs_driver=row.get("needs_driver", ""),
        )
        for name, row in tomllib.loads(text).items()
    }


def normalize(reference: str) -> str:
    """A short reference in full, as containerd reads it: `busybox` is Docker's, tag `latest`."""
    name = reference
    if "/" not in name:
        name = f"docker.io/library/{name}"
    if ":" not in name.rsplit("/", 1)[-1] and "@" not in name:
        name = f"{name}:latest"
    return name


def find(reference: str, platform: str) -> Image:
    """The local image for this platform, or what a pull without a registry answers."""
    name = normalize(reference)
    image = catalogue().get(name)
    if image is None:
        known = ", ".join(sorted(catalogue()))
        raise ImageError(
            f'rpc error: code = NotFound desc = failed to pull and unpack image "{name}": '
            f'failed to resolve reference "{name}": {name}: not found (the testbed pulls nothing; '
            f"local images: {known})"
        )
    if platform not in image.platforms:
        raise ImageError(
            f'rpc error: code = NotFound desc = failed to pull and unpack image "{name}": '
            f"no match for platform in manifest: not found (image has "
            f"{', '.join(image.platforms)}; this node is {platform})"
        )
    return image
