"""The OpenAPI v2 document as protobuf, which kubectl up to 1.28 asks before it applies anything.

It says one thing: the server takes `fieldValidation` on every kind, so clients need not validate.
Encoded by hand, because the message set (google/gnostic:openapiv2/OpenAPIv2.proto) is large and
these are six of its messages; the numbers below are its field numbers.
"""

from __future__ import annotations

from simulator.cluster.kinds import KINDS

CONTENT_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

_SWAGGER, _INFO, _PATHS = 1, 2, 8  # Document
_TITLE, _VERSION = 1, 2  # Info
_PATH = 2  # Paths
_NAME, _VALUE = 1, 2  # NamedPathItem, NamedAny
_PATCH = 8  # PathItem
_PARAMETERS, _EXTENSIONS = 8, 13  # Operation
_PARAMETER = 1  # ParametersItem
_NON_BODY = 2  # Parameter
_QUERY = 3  # NonBodyParameter
_QUERY_IN, _QUERY_NAME, _QUERY_TYPE = 2, 4, 6  # QueryParameterSubSchema
_YAML = 2  # Any


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number: int, content: bytes | str) -> bytes:
    """A length-delimited field."""
    raw = content.encode() if isinstance(content, str) else content
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def document() -> bytes:
    query = (
        _field(_QUERY_IN, "query")
        + _field(_QUERY_NAME, "fieldValidation")
        + _field(_QUERY_TYPE, "string")
    )
    parameter = _field(_PARAMETER, _field(_NON_BODY, _field(_QUERY, query)))
    paths = b""
    for kind in KINDS:
        group = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        scope = "/namespaces/{namespace}" if kind.is_namespaced else ""
        identity = f'group: "{kind.group}"\nkind: {kind.kind}\nversion: {kind.version}\n'
        extension = _field(_NAME, "x-kubernetes-group-version-kind") + _field(
            _VALUE, _field(_YAML, identity)
        )
        operation = _field(_PARAMETERS, parameter) + _field(_EXTENSIONS, extension)
        item = _field(_NAME, f"{group}{scope}/{kind.plural}/{{name}}") + _field(
            _VALUE, _field(_PATCH, operation)
        )
        paths += _field(_PATH, item)
    info = _field(_TITLE, "NPU Testbed") + _field(_VERSION, "v1")
    return _field(_SWAGGER, "2.0") + _field(_INFO, info) + _field(_PATHS, paths)
