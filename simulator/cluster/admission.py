"""What the API does to an object before it stores it: defaults, validation, RuntimeClass rules.

Pure. Texts are those of Kubernetes (`kubernetes:pkg/apis/core/validation/validation.go`,
`kubernetes:plugin/pkg/admission/runtimeclass`). Validates what this field meets; the rest passes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from simulator.cluster.errors import Cause, forbidden, invalid
from simulator.cluster.kinds import BY_PLURAL, Kind

Object = dict[str, Any]
RuntimeClassOf = Callable[[str], Mapping[str, Any] | None]

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    r"for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))"
    r"(?:(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E)|[eE]([+-]?[0-9]+))?"
)
_MAX_SCALE = 10**18
_SUFFIX = {
    "n": (1, 10**9), "u": (1, 10**6), "m": (1, 1000), "": (1, 1),
    "k": (10**3, 1), "M": (10**6, 1), "G": (10**9, 1), "T": (10**12, 1), "P": (10**15, 1),
    "E": (10**18, 1), "Ki": (1 << 10, 1), "Mi": (1 << 20, 1), "Gi": (1 << 30, 1),
    "Ti": (1 << 40, 1), "Pi": (1 << 50, 1), "Ei": (1 << 60, 1),
}  # fmt: skip
_NATIVE = ("cpu", "memory", "ephemeral-storage", "pods", "storage")
_DIGITS = 15


def quantity(text: object) -> tuple[int, int] | None:
    """A Kubernetes quantity as an exact fraction (numerator, denominator), None when malformed."""
    match = _QUANTITY.fullmatch(str(text).strip())
    if match is None:
        return None
    number, suffix, exponent = match.groups()
    whole, _, decimals = number.partition(".")
    if len(whole) + len(decimals) > 3 * _DIGITS:
        return None
    numerator = int((whole + decimals) if (whole + decimals).strip("+-") else "0")
    denominator = 10 ** len(decimals)
    if exponent:
        power = int(exponent)
        if abs(power) > len(str(_MAX_SCALE)):
            return None
        scale = (10**power, 1) if power >= 0 else (1, 10**-power)
    else:
        scale = _SUFFIX[suffix or ""]
    return numerator * scale[0], denominator * scale[1]


def whole(text: object) -> int | None:
    """A quantity as a whole number, None when it is not one."""
    parsed = quantity(text)
    if parsed is None or parsed[0] % parsed[1]:
        return None
    return parsed[0] // parsed[1]


def admit(kind: Kind, obj: Object, runtime_class_of: RuntimeClassOf) -> Object:
    """Default and validate a new object in place; raises ApiError when it is refused."""
    name = str(obj["metadata"].get("name", ""))
    if not _SUBDOMAIN.fullmatch(name) or len(name) > 253:
        cause = Cause(
            reason="FieldValueInvalid",
            message=f'Invalid value: "{name}": {_SUBDOMAIN_RULE}',
            field="metadata.name",
        )
        raise invalid(kind, name, [cause])
    if kind.plural == "pods":
        _admit_pod(obj, runtime_class_of)
    if kind.plural == "runtimeclasses" and not obj.get("handler"):
        cause = Cause(reason="FieldValueRequired", message="Required value", field="handler")
        raise invalid(kind, name, [cause])
    return obj


def _admit_pod(pod: Object, runtime_class_of: RuntimeClassOf) -> None:
    kind, name = BY_PLURAL["pods"], str(pod["metadata"]["name"])
    spec = pod.setdefault("spec", {})
    if not isinstance(spec, dict) or not spec.get("containers"):
        cause = Cause(
            reason="FieldValueRequired", message="Required value", field="spec.containers"
        )
        raise invalid(kind, name, [cause])
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("serviceAccountName", "default")
    pod["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
    causes: list[Cause] = []
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or ()):
            causes += _check_container(container, f"spec.{group}[{index}]")
    if causes:
        raise invalid(kind, name, causes)
    class_name = spec.get("runtimeClassName")
    if class_name:
        _apply_runtime_class(pod, str(class_name), runtime_class_of)


def _check_container(container: Object, path: str) -> list[Cause]:
    causes = []
    for needed in ("name", "image"):
        if not container.get(needed):
            causes.append(
                Cause(
                    reason="FieldValueRequired",
                    message="Required value",
                    field=f"{path}.{needed}",
                )
            )
    container.setdefault("imagePullPolicy", "IfNotPresent")
    resources = container.setdefault("resources", {})
    limits = resources.get("limits") or {}
    requests = resources.get("requests") or {}
    for name in list(limits):
        requests.setdefault(name, limits[name])
    if requests:
        resources["requests"] = requests
    for where, table in (("limits", limits), ("requests", requests)):
        for name, amount in table.items():
            causes += _check_quantity(name, amount, f"{path}.resources.{where}[{name}]")
            table[name] = str(amount)
    for name, amount in requests.items():
        if "/" not in name:
            continue
        field = f"{path}.resources.requests"
        if name not in limits:
            text = "Required value: Limit must be set for non overcommitable resources"
            causes.append(
                Cause(
                    reason="FieldValueRequired",
                    message=text,
                    field=f"{path}.resources.limits",
                )
            )
        elif whole(amount) != whole(limits[name]):
            text = f'Invalid value: "{amount}": must be equal to {name} limit of {limits[name]}'
            causes.append(Cause(reason="FieldValueInvalid", message=text, field=field))
    return causes


def _check_quantity(name: str, amount: object, field: str) -> list[Cause]:
    def cause(text: str) -> list[Cause]:
        message = f'Invalid value: "{amount}": {text}'
        return [Cause(reason="FieldValueInvalid", message=message, field=field)]

    parsed = quantity(amount)
    if parsed is None:
        return cause(
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    if parsed[0] < 0:
        return cause("must be greater than or equal to 0")
    if "/" in name and whole(amount) is None:
        return cause("must be an integer")
    if "/" not in name and name not in _NATIVE and not name.startswith("hugepages-"):
        message = f'Invalid value: "{name}": must be a standard resource for containers'
        return [Cause(reason="FieldValueInvalid", message=message, field=field)]
    return []


def _apply_runtime_class(pod: Object, name: str, runtime_class_of: RuntimeClassOf) -> None:
    kind, pod_name = BY_PLURAL["pods"], str(pod["metadata"]["name"])
    found = runtime_class_of(name)
    if found is None:
        why = f'pod rejected: RuntimeClass "{name}" not found'
        raise forbidden(kind, pod_name, why)
    scheduling = found.get("scheduling") or {}
    selector = pod["spec"].setdefault("nodeSelector", {})
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        if key in selector and selector[key] != value:
            why = (
                f"pod rejected: conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
            raise forbidden(kind, pod_name, why)
        selector[key] = value
    if not selector:
        del pod["spec"]["nodeSelector"]
    for toleration in scheduling.get("tolerations") or ():
        tolerations = pod["spec"].setdefault("tolerations", [])
        if toleration not in tolerations:
            tolerations.append(toleration)
