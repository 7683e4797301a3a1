"""Refusals of the API, with the code, reason and wording Kubernetes uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from simulator.cluster.kinds import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One reason why an object is invalid."""

    reason: str
    message: str
    field: str


class ApiError(Exception):
    """A refused request; `status()` is the body a client gets."""

    def __init__(
        self, code: int, reason: str, message: str, details: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}

    def status(self) -> dict[str, Any]:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        }


def _resource(kind: Kind) -> str:
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def _details(kind: Kind, name: str) -> dict[str, Any]:
    return {"name": name, "group": kind.group, "kind": kind.plural}


def not_found(kind: Kind, name: str) -> ApiError:
    text = f'{_resource(kind)} "{name}" not found'
    return ApiError(404, "NotFound", text, _details(kind, name))


def already_exists(kind: Kind, name: str) -> ApiError:
    text = f'{_resource(kind)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", text, _details(kind, name))


def conflict(kind: Kind, name: str, why: str = "") -> ApiError:
    cause = why or (
        "the object has been modified; please apply your changes to the latest version and "
        "try again"
    )
    text = f'Operation cannot be fulfilled on {_resource(kind)} "{name}": {cause}'
    return ApiError(409, "Conflict", text, _details(kind, name))


def forbidden(kind: Kind, name: str, why: str) -> ApiError:
    text = f'{_resource(kind)} "{name}" is forbidden: {why}'
    return ApiError(403, "Forbidden", text, _details(kind, name))


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> ApiError:
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = _details(kind, name) | {
        "kind": kind.kind,
        "causes": [
            {"reason": cause.reason, "message": cause.message, "field": cause.field}
            for cause in causes
        ],
    }
    shown = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    return ApiError(422, "Invalid", f'{shown} "{name}" is invalid: {listed}', details)


def bad_request(text: str) -> ApiError:
    return ApiError(400, "BadRequest", text)


def gone(text: str) -> ApiError:
    return ApiError(410, "Expired", text)
