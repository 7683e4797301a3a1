"""The device manager's checkpoint file: its JSON and its checksum, byte for byte. Pure.

The checksum is FNV-1a (32 bits) over the text that Go's spew package makes of the data
(`kubernetes:pkg/kubelet/checkpointmanager/checksum`); ids are hashed in the order of the file, so a
file can be verified from its own text. Version 1 lists a container's ids, version 2 lists them by
NUMA node.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

NAME = "kubelet_internal_checkpoint"
DAMAGES = ("bad_sum", "truncated", "v1", "missing", "empty")
_OFFSET, _PRIME = 0x811C9DC5, 0x01000193


class CorruptCheckpoint(Exception):
    """The file cannot be believed; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What one container holds of one resource: ids by NUMA node, and the plugin's answer as the
    bytes of a ContainerAllocateResponse."""

    pod_uid: str
    container: str
    resource: str
    ids: Mapping[int, tuple[str, ...]]
    response: bytes = b""

    @property
    def all_ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one for ids in self.ids.values() for one in ids))


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """All that the file says; `registered` maps a resource to its healthy ids."""

    entries: tuple[Entry, ...] = ()
    registered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def encode(content: Checkpoint, version: str = "v2") -> bytes:
    """The file's bytes."""
    data = _data(content, version)
    number = _checksum(_spew(data, version))
    text = json.dumps({"Data": data, "Checksum": number}, separators=(",", ":"), ensure_ascii=False)
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text.encode()


def decode(raw: bytes, formats: Collection[str] = ("v2",)) -> Checkpoint:
    """Read and verify; CorruptCheckpoint when anything is wrong or the format is not understood."""
    try:
        outer = json.loads(raw)
        data, claimed = outer["Data"], outer["Checksum"]
        version = _version_of(data)
        if version not in formats and data["PodDeviceEntries"]:
            found, wanted = (
                ("array", "checkpoint.DevicesPerNUMA")
                if version == "v1"
                else ("object", "[]string")
            )
            raise CorruptCheckpoint(
                f"json: cannot unmarshal {found} into Go struct field "
                f"PodDevicesEntry.Data.PodDeviceEntries.DeviceIDs of type {wanted}"
            )
        content = _content(data, version)
        actual = _checksum(_spew(data, version))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptCheckpoint(f"unexpected content: {error}") from None
    if actual != claimed:
        raise CorruptCheckpoint("checkpoint is corrupted")
    return content


def damage(raw: bytes, how: str) -> bytes | None:
    """A checkpoint gone wrong: `bad_sum`, `truncated`, `empty`, `v1` (written by an old version)
    or `missing` (None: no file)."""
    if how == "missing":
        return None
    if how == "empty":
        return b""
    if how == "truncated":
        return raw[: len(raw) // 2]
    if how == "v1":
        return encode(decode(raw, ("v1", "v2")), "v1")
    if how == "bad_sum":
        outer = json.loads(raw)
        outer["Checksum"] = (outer["Checksum"] + 1) & 0xFFFFFFFF
        return json.dumps(outer, separators=(",", ":")).encode()
    raise ValueError(f"{how!r} is unknown, wanted {', '.join(DAMAGES)}")


def _version_of(data: Mapping[str, Any]) -> str:
    entries = data["PodDeviceEntries"] or []
    return "v1" if any(isinstance(entry["DeviceIDs"], list) for entry in entries) else "v2"


def _data(content: Checkpoint, version: str) -> dict[str, Any]:
    entries = [
        {
            "PodUID": entry.pod_uid,
            "ContainerName": entry.container,
            "ResourceName": entry.resource,
            "DeviceIDs": list(entry.all_ids)
            if version == "v1"
            else {key: list(entry.ids[int(key)]) for key in sorted(map(str, entry.ids))},
            "AllocResp": base64.b64encode(entry.response).decode(),
        }
        for entry in content.entries
    ]
    return {
        "PodDeviceEntries": entries or None,
        "RegisteredDevices": {
            name: list(content.registered[name]) for name in sorted(content.registered)
        },
    }


def _content(data: Mapping[str, Any], version: str) -> Checkpoint:
    entries = []
    for row in data["PodDeviceEntries"] or []:
        listed = row["DeviceIDs"]
        ids = (
            {0: tuple(map(str, listed))}
            if version == "v1"
            else {int(key): tuple(map(str, value)) for key, value in listed.items()}
        )
        entries.append(
            Entry(
                pod_uid=str(row["PodUID"]),
                container=str(row["ContainerName"]),
                resource=str(row["ResourceName"]),
                ids=ids,
                response=base64.b64decode(row["AllocResp"] or "", validate=True),
            )
        )
    registered = data["RegisteredDevices"] or {}
    return Checkpoint(
        entries=tuple(entries),
        registered={str(name): tuple(map(str, ids or ())) for name, ids in registered.items()},
    )


def _spew(data: Mapping[str, Any], version: str) -> str:
    """The hashed text."""
    entries = data["PodDeviceEntries"]
    if entries is None:
        listed = "<nil>"
    else:
        listed = "[" + " ".join(_spew_entry(entry, version) for entry in entries) + "]"
    registered = data["RegisteredDevices"]
    shown = "<nil>" if registered is None else _spew_map({str(k): v for k, v in registered.items()})
    return (
        f"(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){listed} "
        f"RegisteredDevices:(map[string][]string){shown}}}"
    )


def _spew_entry(entry: Mapping[str, Any], version: str) -> str:
    ids = entry["DeviceIDs"]
    if version == "v1":
        devices = f"([]string)[{' '.join(ids)}]"
    else:
        in_order = {str(number): ids[str(number)] for number in sorted(map(int, ids))}
        devices = "(checkpoint.DevicesPerNUMA)" + _spew_map(in_order, is_sorted=True)
    raw = base64.b64decode(entry["AllocResp"] or "", validate=True)
    response = "[" + " ".join(str(byte) for byte in raw) + "]"
    if entry["AllocResp"] is None:
        response = "<nil>"
    return (
        f"{{PodUID:(string){entry['PodUID']} ContainerName:(string){entry['ContainerName']} "
        f"ResourceName:(string){entry['ResourceName']} DeviceIDs:{devices} "
        f"AllocResp:([]uint8){response}}}"
    )


def _spew_map(rows: Mapping[str, Any], *, is_sorted: bool = False) -> str:
    keys = list(rows) if is_sorted else sorted(rows)
    parts = [
        f"{key}:{'<nil>' if rows[key] is None else '[' + ' '.join(rows[key]) + ']'}" for key in keys
    ]
    return f"map[{' '.join(parts)}]"


def _checksum(text: str) -> int:
    value = _OFFSET
    for byte in text.encode():
        value = ((value ^ byte) * _PRIME) & 0xFFFFFFFF
    return value
