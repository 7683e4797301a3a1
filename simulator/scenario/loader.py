"""From a YAML file to a `Scenario`, or an error that names file, line, column, value and choices.

Reads the field definitions of `schema`; knows no field itself. A scenario is data: only plain YAML
scalars, lists and mappings are accepted, no tags and no anchors that would run anything.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from pathlib import Path
from typing import Any

import yaml

from simulator.errors import ScenarioError
from simulator.scenario.schema import STEPS, Scenario, Step

MAX_BYTES = 1 << 20
MAX_DEPTH = 12


def load(path: Path) -> Scenario:
    """Read and validate one file."""
    return loads(read_text(path), str(path))


def read_text(path: Path) -> str:
    """The text of a file that a user wrote."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ScenarioError(
            f"{path}: cannot be read ({error.strerror}). Next: name an existing scenario file."
        ) from None
    if len(raw) > MAX_BYTES:
        raise ScenarioError(f"{path}: {len(raw)} bytes, wanted at most {MAX_BYTES}.")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: byte {error.start} is not UTF-8 text.") from None


def loads(text: str, name: str) -> Scenario:
    """Validate scenario text; `name` stands in messages."""
    scenario: Scenario = _Reader(name).record(_compose(text, name), Scenario, "the scenario", 0)
    return scenario


def loads_record(text: str, name: str, kind: type[Any], what: str) -> tuple[Any, dict[str, str]]:
    """Any record in scenario syntax, and where each of its fields stands (file:line:column)."""
    root = _compose(text, name)
    record = _Reader(name).record(root, kind, what, 0)
    places = {
        str(key.value): f"{name}:{value.start_mark.line + 1}:{value.start_mark.column + 1}"
        for key, value in root.value
    }
    return record, places


def _compose(text: str, name: str) -> Any:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        raise ScenarioError(f"{where}: not valid YAML: {error.problem}.") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ScenarioError(f"{name}: not valid YAML: {str(error).splitlines()[0]}.") from None
    if root is None:
        raise ScenarioError(f"{name}:1:1: the file is empty, wanted at least `name:`.")
    return root


class _Reader:
    def __init__(self, name: str) -> None:
        self._name = name

    def record(self, node: yaml.Node, kind: type[Any], what: str, depth: int) -> Any:
        pairs = self._pairs(node, what, depth)
        fields = {field.name: field for field in dataclasses.fields(kind)}
        hints = typing.get_type_hints(kind)
        values: dict[str, Any] = {}
        for key_node, key, value_node in pairs:
            if key not in fields:
                raise self._unknown(key_node, key, f"field of {what}", list(fields))
            values[key] = self.value(value_node, hints[key], key, depth + 1)
        for field in fields.values():
            is_needed = (
                field.default is dataclasses.MISSING
                and field.default_factory is dataclasses.MISSING
            )
            if is_needed and field.name not in values:
                raise self._error(node, f"{what} needs `{field.name}`")
        return kind(**values)

    def value(self, node: yaml.Node, hint: Any, what: str, depth: int) -> Any:
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if hint == Step:
            return self.step(node, depth)
        if origin in (typing.Union, types.UnionType):
            if node.tag == "tag:yaml.org,2002:null":
                return None
            (inner,) = (argument for argument in arguments if argument is not type(None))
            return self.value(node, inner, what, depth)
        if origin is typing.Literal:
            text = self._scalar(node, what)
            if text not in arguments:
                raise self._unknown(node, text, f"value of `{what}`", list(arguments))
            return text
        if origin is tuple:
            if not isinstance(node, yaml.SequenceNode):
                raise self._error(node, f"`{what}` must be a list")
            self._check_depth(node, depth)
            return tuple(self.value(item, arguments[0], what, depth + 1) for item in node.value)
        if origin is dict:
            pairs = self._pairs(node, f"`{what}`", depth)
            return {key: self._scalar(value, f"{what}.{key}") for _, key, value in pairs}
        if dataclasses.is_dataclass(hint):
            return self.record(node, typing.cast("type[Any]", hint), f"`{what}`", depth)
        return self._plain(node, hint, what)

    def step(self, node: yaml.Node, depth: int) -> Step:
        pairs = self._pairs(node, "a step", depth)
        if len(pairs) != 1:
            raise self._error(node, f"a step has exactly one verb, got {len(pairs)}")
        key_node, verb, body = pairs[0]
        if verb not in STEPS:
            raise self._unknown(key_node, verb, "step", list(STEPS))
        kind = STEPS[verb]
        names = [field.name for field in dataclasses.fields(kind)]
        if isinstance(body, yaml.ScalarNode) and names:
            if body.tag == "tag:yaml.org,2002:null":
                return typing.cast("Step", self.record(_empty(body), kind, f"`{verb}`", depth))
            hints = typing.get_type_hints(kind)
            short = self.value(body, hints[names[0]], verb, depth)
            try:
                return kind(**{names[0]: short})
            except TypeError:
                raise self._error(body, f"`{verb}` needs a mapping of {', '.join(names)}") from None
        if isinstance(body, yaml.ScalarNode) and body.tag == "tag:yaml.org,2002:null":
            body = _empty(body)
        return typing.cast("Step", self.record(body, kind, f"`{verb}`", depth))

    def _pairs(
        self, node: yaml.Node, what: str, depth: int
    ) -> list[tuple[yaml.Node, str, yaml.Node]]:
        if not isinstance(node, yaml.MappingNode):
            raise self._error(node, f"{what} must be a mapping of `key: value`")
        self._check_depth(node, depth)
        pairs: list[tuple[yaml.Node, str, yaml.Node]] = []
        for key_node, value_node in node.value:
            key = self._scalar(key_node, f"a key of {what}")
            if any(key == seen for _, seen, _ in pairs):
                raise self._error(key_node, f"`{key}` is given twice")
            pairs.append((key_node, key, value_node))
        return pairs

    def _check_depth(self, node: yaml.Node, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self._error(node, f"nested deeper than {MAX_DEPTH} levels")

    def _scalar(self, node: yaml.Node, what: str) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self._error(node, f"`{what}` must be a single value")
        return str(node.value)

    def _plain(self, node: yaml.Node, hint: Any, what: str) -> Any:
        text = self._scalar(node, what)
        if hint is str:
            return text
        if hint is bool:
            if text not in ("true", "false"):
                raise self._error(node, f"`{what}` is {text!r}, wanted true or false")
            return text == "true"
        try:
            number = int(text, 0) if hint is int else float(text)
        except ValueError:
            kind = "a whole number" if hint is int else "a number"
            raise self._error(node, f"`{what}` is {text!r}, wanted {kind}") from None
        if not math.isfinite(number) or number < 0:
            raise self._error(node, f"`{what}` is {text}, wanted 0 or more")
        return number

    def _unknown(self, node: yaml.Node, got: str, what: str, allowed: list[str]) -> ScenarioError:
        near = difflib.get_close_matches(got, allowed, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return self._error(node, f"unknown {what} {got!r}, allowed: {', '.join(allowed)}", hint)

    def _error(self, node: yaml.Node, text: str, hint: str = "") -> ScenarioError:
        mark = node.start_mark
        return ScenarioError(f"{self._name}:{mark.line + 1}:{mark.column + 1}: {text}.{hint}")


def _empty(at: yaml.Node) -> yaml.MappingNode:
    return yaml.MappingNode("tag:yaml.org,2002:map", [], at.start_mark, at.end_mark)
