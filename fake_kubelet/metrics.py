"""The kubelet's counters that concern devices, in the Prometheus text format. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
REGISTRATIONS = "kubelet_device_plugin_registration_total"
ALLOC_SECONDS = "kubelet_device_plugin_alloc_duration_seconds"
POD_RESOURCES = "kubelet_pod_resources_endpoint_"
REJECTIONS = "kubelet_admission_rejections_total"

_HELP = {
    REGISTRATIONS: "Cumulative number of device plugin registrations. Broken down by resource "
    "name.",
    ALLOC_SECONDS: "Duration in seconds to serve a device plugin Allocation request.",
    REJECTIONS: "Cumulative number pod admission rejections by the Kubelet.",
}


class Metrics:
    """Counters by name and label value, and one histogram per resource."""

    def __init__(self) -> None:
        self._counters: Counter[tuple[str, str, str]] = Counter()
        self._seconds: dict[str, list[float]] = defaultdict(lambda: [0.0] * (len(BUCKETS) + 2))

    def registered(self, resource: str) -> None:
        self._counters[REGISTRATIONS, "resource_name", resource] += 1

    def allocated(self, resource: str, seconds: float) -> None:
        row = self._seconds[resource]
        for number, bound in enumerate(BUCKETS):
            row[number] += seconds <= bound
        row[-2] += 1
        row[-1] += seconds

    def pod_resources(self, what: str, version: str) -> None:
        """`what` is total, list, get, get_allocatable, errors_list and so on."""
        name = f"{POD_RESOURCES}requests_{what}"
        if what.startswith("errors"):
            name = f"{POD_RESOURCES}{what}"
        self._counters[name, "server_api_version", version] += 1

    def rejected(self, reason: str) -> None:
        folded = reason if "/" not in reason else "OutOfExtendedResources"
        self._counters[REJECTIONS, "reason", folded] += 1

    def value(self, name: str, label: str) -> int:
        """One counter; 0 where nothing was counted."""
        return sum(
            n for (key, _, value), n in self._counters.items() if (key, value) == (name, label)
        )

    def text(self) -> str:
        """Exposition format, sorted."""
        lines: list[str] = []
        said = ""
        for (name, label, value), count in sorted(self._counters.items()):
            if name != said:
                lines += _head(name, "counter")
                said = name
            lines.append(f'{name}{{{label}="{_escaped(value)}"}} {count}')
        if self._seconds:
            lines += _head(ALLOC_SECONDS, "histogram")
        for resource, row in sorted(self._seconds.items()):
            label = f'resource_name="{_escaped(resource)}"'
            for bound, within in zip((*map(str, BUCKETS), "+Inf"), row, strict=False):
                lines.append(f'{ALLOC_SECONDS}_bucket{{{label},le="{bound}"}} {within:g}')
            lines.append(f"{ALLOC_SECONDS}_sum{{{label}}} {row[-1]:.9g}")
            lines.append(f"{ALLOC_SECONDS}_count{{{label}}} {row[-2]:g}")
        return "\n".join(lines) + "\n" if lines else ""


def resource_text(started: Mapping[tuple[str, str, str], float]) -> str:
    """/metrics/resource: start times in seconds since 1970 by (namespace, pod, container)."""
    lines = []
    for name, kind in (
        ("container_cpu_usage_seconds_total", "counter"),
        ("container_memory_working_set_bytes", "gauge"),
        ("container_start_time_seconds", "gauge"),
    ):
        lines.append(f"# TYPE {name} {kind}")
        for (namespace, pod, container), start_s in sorted(started.items()):
            labels = (
                f'container="{_escaped(container)}",namespace="{_escaped(namespace)}",'
                f'pod="{_escaped(pod)}"'
            )
            value = f"{start_s:.9g}" if name.endswith("time_seconds") else "0"
            lines.append(f"{name}{{{labels}}} {value}")
    for name, kind in (
        ("node_cpu_usage_seconds_total", "counter"),
        ("node_memory_working_set_bytes", "gauge"),
        ("resource_scrape_error", "gauge"),
    ):
        lines += [f"# TYPE {name} {kind}", f"{name} 0"]
    return "\n".join(lines) + "\n"


def _head(name: str, kind: str) -> list[str]:
    text = _HELP.get(name, "Cumulative number of PodResource endpoint requests.")
    return [f"# HELP {name} [ALPHA] {text}", f"# TYPE {name} {kind}"]


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
