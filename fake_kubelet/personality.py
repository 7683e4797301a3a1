"""Which Kubernetes version a kubelet behaves like: a named value for each difference. Data:
`data/personalities.toml`, with its sources."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import resources
from typing import Any

FIRST_MINOR, LAST_MINOR = 19, 37
DEFAULT_VERSION = "1.28"


class UnknownPersonality(Exception):
    """No such version, switch or value; the text names those that are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Personality:
    """One version's behaviour. The meaning of each switch is in `about(name)`. `release` is what
    the node tells; a patch release changes nothing else."""

    version: str
    release: str
    register_mode: str
    options_source: str
    stale_stream_disconnect: str
    disconnect_nil_panic: str
    admission_health_checks: str
    running_container_bypass: str
    pending_admission_pod: str
    readmit_terminal_pods: str
    dir_cleanup: str
    checkpoint_write: str
    checkpoint_reads_v1: str
    no_topology_numa_key: str
    podres_entry_shape: str
    podres_allocatable_set: str
    podres_list_scope: str
    podres_get: str
    podres_init_sidecars: str
    podres_rate_limit: str
    status_prefix: str
    device_registration_healthz: str
    resource_health_status: str
    unresolvable_fit: str
    reuse_nil_map_panic: str
    preferred_allocation: str
    cdi_devices: str
    sidecars: str
    authority: str
    zero_request_start: str
    allocate_for_gone_pods: str
    hint_nodes: str
    reset_extended_resources: str
    duplicate_register: str
    cleanup_failure: str
    admission_metric: str
    finished_pods: str


@functools.cache
def _table() -> dict[str, dict[str, Any]]:
    text = resources.files(__package__).joinpath("data/personalities.toml").read_text()
    return tomllib.loads(text)


def switches() -> tuple[str, ...]:
    """The names of all switches."""
    return tuple(_table())


def about(switch: str) -> str:
    """What a switch decides, and what is known of patch releases."""
    row = _table()[switch]
    return str(row["about"]) + (f" ({row['note']})" if "note" in row else "")


def values(switch: str) -> tuple[str, ...]:
    """Every value a switch can have, those that no version has by itself included."""
    row = _table()[switch]
    found = [str(value) for value in (*row["values"].values(), *row.get("also", ()))]
    return tuple(dict.fromkeys(found))


def versions() -> tuple[str, ...]:
    """Every version there is a personality for, oldest first."""
    return tuple(f"1.{minor}" for minor in range(FIRST_MINOR, LAST_MINOR + 1))


@functools.cache
def _of_minor(minor: int) -> Personality:
    chosen = {}
    for name, row in _table().items():
        known = {int(first): str(value) for first, value in row["values"].items()}
        chosen[name] = known[max(first for first in known if first <= minor)]
    return Personality(version=f"1.{minor}", release=f"v1.{minor}.0", **chosen)


def personality(
    version: str = DEFAULT_VERSION, overrides: Mapping[str, str] | None = None
) -> Personality:
    """A version's personality (`1.28`, `v1.28.15`), with some switches set otherwise."""
    match = re.fullmatch(r"v?1\.(\d+)(\.\d+)?", version)
    if match is None or not FIRST_MINOR <= int(match[1]) <= LAST_MINOR:
        raise UnknownPersonality(
            f"version {version!r} is unknown, wanted {versions()[0]} to {versions()[-1]}"
        )
    made = _of_minor(int(match[1]))
    for name, value in (overrides or {}).items():
        if name not in _table():
            raise UnknownPersonality(f"switch {name!r} is unknown, wanted {', '.join(_table())}")
        if value not in values(name):
            raise UnknownPersonality(
                f"switch {name} cannot be {value!r}, wanted {' or '.join(values(name))}"
            )
    kept = {field.name: getattr(made, field.name) for field in fields(made)}
    if match[2] is not None:
        kept["release"] = "v" + version.removeprefix("v")
    return Personality(**(kept | dict(overrides or {})))


def markdown_table() -> str:
    """Switch by version, for the documentation; a cell names a value where it begins."""
    lines = ["| switch | decides | values by version |", "|---|---|---|"]
    for name in switches():
        row = _table()[name]["values"]
        parts = []
        firsts = sorted(int(first) for first in row)
        for number, first in enumerate(firsts):
            last = firsts[number + 1] - 1 if number + 1 < len(firsts) else LAST_MINOR
            span = f"1.{first}" if first == last else f"1.{first}-1.{last}"
            parts.append(f"{span} `{str(row[str(first)]).strip()}`")
        lines.append(f"| `{name}` | {about(name)} | {', '.join(parts)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown_table(), end="")
