"""containerd's config.toml: which handlers there are and which program each runs. Pure text work.

Versions 1, 2 and 3 keep the CRI runtime tables in different places
(Ascend/mind-cluster:component/ascend-docker-runtime/install/process/containerd_process.go).
Comments and order survive an edit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

RUNC_TYPE = "io.containerd.runc.v2"
DEFAULT_BINARY = "runc"

_TABLES = {
    1: ("plugins", "cri", "containerd"),
    2: ("plugins", "io.containerd.grpc.v1.cri", "containerd"),
    3: ("plugins", "io.containerd.cri.v1.runtime", "containerd"),
}


class BadConfig(Exception):
    """The text is not a containerd configuration."""


class UnknownHandler(LookupError):
    """No such handler; the text is containerd's."""

    def __init__(self, handler: str) -> None:
        super().__init__(f'no runtime for "{handler}" is configured')


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """One runtime handler; `binary` is what the shim calls for every OCI verb."""

    name: str
    runtime_type: str
    binary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    """The CRI runtime part of a configuration."""

    version: int
    default: str
    handlers: Mapping[str, Handler]

    def resolve(self, handler: str) -> Handler:
        """The handler a sandbox gets; the empty name means the default."""
        name = handler or self.default
        try:
            return self.handlers[name]
        except KeyError:
            raise UnknownHandler(name) from None


def parse(text: str) -> RuntimeConfig:
    """Read a configuration of any version."""
    document = _document(text)
    version = _version(document)
    table = _descend(document, _TABLES[version])
    runtimes = table.get("runtimes")
    handlers = {}
    for name, runtime in (runtimes if isinstance(runtimes, Mapping) else {}).items():
        options = runtime.get("options") if isinstance(runtime, Mapping) else None
        binary = options.get("BinaryName") if isinstance(options, Mapping) else None
        handlers[str(name)] = Handler(
            name=str(name),
            runtime_type=str(runtime.get("runtime_type", "")),
            binary=str(binary or DEFAULT_BINARY),
        )
    return RuntimeConfig(
        version=version,
        default=str(table.get("default_runtime_name", "runc")),
        handlers=handlers,
    )


def add_handler(text: str, name: str, binary: str, *, make_default: bool = False) -> str:
    """The text with a runc-type handler added or replaced; the default stays unless asked."""
    document = _document(text)
    table: Any = document
    for key in _TABLES[_version(document)]:
        table = table.setdefault(key, tomlkit.table(is_super_table=True))
    runtimes = table.setdefault("runtimes", tomlkit.table(is_super_table=True))
    handler = tomlkit.table()
    handler["runtime_type"] = RUNC_TYPE
    options = tomlkit.table()
    options["BinaryName"] = binary
    options["SystemdCgroup"] = False
    handler["options"] = options
    runtimes[name] = handler
    if make_default:
        table["default_runtime_name"] = name
    return tomlkit.dumps(document)


def remove_handler(text: str, name: str) -> str:
    """The text without a handler; removing what is not there changes nothing."""
    document = _document(text)
    runtimes = _descend(document, _TABLES[_version(document)]).get("runtimes")
    if isinstance(runtimes, dict) and name in runtimes:
        del runtimes[name]
    return tomlkit.dumps(document)


def default_config(version: int = 2) -> str:
    """A configuration with runc alone, as a fresh node has it."""
    table = ".".join(f'"{key}"' if "." in key else key for key in _TABLES[version])
    return (
        f"version = {version}\n\n"
        f"[{table}]\n"
        '  default_runtime_name = "runc"\n'
        f"  [{table}.runtimes.runc]\n"
        f'    runtime_type = "{RUNC_TYPE}"\n'
        f"    [{table}.runtimes.runc.options]\n"
        "      SystemdCgroup = false\n"
    )


def _document(text: str) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(text)
    except (TOMLKitError, ValueError, RecursionError) as error:
        raise BadConfig(f"not valid TOML: {error}") from None


def _version(document: tomlkit.TOMLDocument) -> int:
    """The layout in force: a missing or odd version means 2, anything above 2 means 3."""
    version = document.get("version", 2)
    if isinstance(version, bool) or not isinstance(version, int):
        return 2
    return version if version in (1, 2) else 3


def _descend(document: Mapping[str, Any], keys: tuple[str, ...]) -> Mapping[str, Any]:
    table: Any = document
    for key in keys:
        table = table.get(key)
        if not isinstance(table, Mapping):
            return {}
    result: Mapping[str, Any] = table
    return result
