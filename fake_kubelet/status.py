"""What a kubelet writes: node object, node status, pod status. Pure; wording is the kubelet's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal


def timestamp(epoch_s: float) -> str:
    """Kubernetes time text, in whole seconds UTC."""
    return datetime.fromtimestamp(int(epoch_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdentity:
    """What the node says of itself."""

    name: str
    kubelet_port: int = 10250
    architecture: str = "amd64"
    address: str = "127.0.0.1"
    labels: Mapping[str, str] = field(default_factory=dict)
    cpu: int = 192
    memory_ki: int = 1_584_000_000
    pods: int = 110


_CONDITIONS = (
    (
        "MemoryPressure",
        "False",
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


def node_object(identity: NodeIdentity) -> dict[str, Any]:
    """The node as first registered: labels, an annotation, no status yet."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": identity.name,
            "labels": {
                "kubernetes.io/hostname": identity.name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": identity.architecture,
                **identity.labels,
            },
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "spec": {},
    }


def node_status(
    identity: NodeIdentity,
    capacity: Mapping[str, int],
    allocatable: Mapping[str, int],
    *,
    ready_since_s: float,
    heartbeat_s: float,
    release: str,
    boots: int = 1,
) -> dict[str, Any]:
    """The whole status sub-resource; device counts are integers as text. `release` is the
    kubelet's version; `boots` counts the machine's starts and makes its boot id."""
    base = {
        "cpu": str(identity.cpu),
        "ephemeral-storage": "1000000000Ki",
        "memory": f"{identity.memory_ki}Ki",
        "pods": str(identity.pods),
    }
    # A resource without an allocatable figure shows its capacity, as the kubelet does.
    return {
        "addresses": [
            {"type": "InternalIP", "address": identity.address},
            {"type": "Hostname", "address": identity.name},
        ],
        "capacity": base | {name: str(count) for name, count in capacity.items()},
        "allocatable": base
        | {name: str(allocatable.get(name, count)) for name, count in capacity.items()},
        "conditions": [
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": timestamp(heartbeat_s),
                "lastTransitionTime": timestamp(ready_since_s),
            }
            for kind, status, reason, message in _CONDITIONS
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": identity.kubelet_port}},
        "nodeInfo": {
            "architecture": identity.architecture,
            "bootID": boot_id(boots),
            "containerRuntimeVersion": "containerd://1.7.0",
            "kernelVersion": "5.10.0",
            "kubeProxyVersion": release,
            "kubeletVersion": release,
            "machineID": "0" * 32,
            "operatingSystem": "linux",
            "osImage": "NPU Testbed (simulated host)",
            "systemUUID": "0" * 32,
        },
        "images": [],
    }


def merged_status(before: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
    """A node's status to write over an earlier one: what others put into its capacity stays, and
    is allocatable as well."""
    capacity = {**(before.get("capacity") or {}), **status["capacity"]}
    return {
        **status,
        "capacity": capacity,
        "allocatable": {**capacity, **status["allocatable"]},
    }


def reset_extended(status: Mapping[str, Any]) -> dict[str, Any]:
    """A node's status with every extended resource at 0, whoever put it there."""
    reset = dict(status)
    for part in ("capacity", "allocatable"):
        counts = status.get(part) or {}
        reset[part] = {name: "0" if "/" in name else count for name, count in counts.items()}
    return reset


def boot_id(boots: int) -> str:
    """The boot id of the machine's n-th start."""
    return f"00000000-0000-0000-0000-{boots:012d}"


@dataclass(slots=True, kw_only=True)
class ContainerState:
    """One container of a pod. `stage` follows the container; times are seconds since 1970.
    `is_sidecar`: an init container that keeps running. `has_news`: it ended while no kubelet
    ran."""

    name: str
    image: str
    is_init: bool = False
    is_sidecar: bool = False
    has_news: bool = False
    stage: Literal["waiting", "starting", "running", "terminated"] = "waiting"
    reason: str = "ContainerCreating"
    message: str = ""
    exit_code: int = 0
    container_id: str = ""
    started_s: float | None = None
    finished_s: float | None = None
    restarts: int = 0
    last: dict[str, Any] | None = None

    @property
    def is_through(self) -> bool:
        """An init container that lets the next one start."""
        if self.is_sidecar:
            return self.stage == "running"
        return self.stage == "terminated" and self.exit_code == 0

    def ended(self) -> dict[str, Any]:
        """The `terminated` state."""
        state: dict[str, Any] = {"exitCode": self.exit_code, "reason": self.reason}
        if self.message:
            state["message"] = self.message
        if self.started_s is not None:
            state["startedAt"] = timestamp(self.started_s)
        if self.finished_s is not None:
            state["finishedAt"] = timestamp(self.finished_s)
        if self.container_id:
            state["containerID"] = self.container_id
        return {"terminated": state}

    def status(self) -> dict[str, Any]:
        if self.stage == "running":
            state: dict[str, Any] = {"running": {"startedAt": timestamp(self.started_s or 0)}}
        elif self.stage == "terminated":
            state = self.ended()
        else:
            waiting = {"reason": self.reason}
            if self.message:
                waiting["message"] = self.message
            state = {"waiting": waiting}
        return {
            "name": self.name,
            "image": self.image,
            "imageID": self.image if self.container_id else "",
            "containerID": self.container_id,
            "restartCount": self.restarts,
            "ready": self.is_through if self.is_init else self.stage == "running",
            "started": self.stage == "running",
            "state": state,
            "lastState": self.last or {},
        }


def pod_phase(containers: list[ContainerState], restart_policy: str) -> str:
    """The phase that container states add up to (`kubernetes:pkg/kubelet/kubelet_pods.go`)."""
    mains = [c for c in containers if not c.is_init]
    for init in (c for c in containers if c.is_init):
        if init.is_through or (init.is_sidecar and init.last is not None):
            continue
        if init.is_sidecar and init.stage == "terminated":
            continue
        has_failed = init.stage == "terminated" and restart_policy == "Never"
        return "Failed" if has_failed else "Pending"
    if any(c.stage in ("waiting", "starting") and c.last is None for c in mains):
        return "Pending"
    if any(c.stage != "terminated" for c in mains):
        return "Running"
    is_success = all(c.exit_code == 0 for c in mains)
    if restart_policy == "Always" or (restart_policy == "OnFailure" and not is_success):
        return "Running"
    return "Succeeded" if is_success else "Failed"


def pod_status(
    containers: list[ContainerState],
    *,
    restart_policy: str,
    host_ip: str,
    started_s: float,
    now_s: float,
    has_sandbox: bool,
    device_health: Mapping[str, list[dict[str, Any]]] | None = None,
) -> dict[str, Any]:
    """Status sub-resource of an admitted pod. `device_health` has the `allocatedResourcesStatus`
    of each app container, for versions that tell it."""
    phase = pod_phase(containers, restart_policy)
    mains = [c for c in containers if not c.is_init]
    inits = [c for c in containers if c.is_init]
    is_over = phase in ("Succeeded", "Failed")
    is_initialized = all(c.is_through for c in inits)
    is_ready = bool(mains) and all(c.stage == "running" for c in mains)
    unready = [c.name for c in mains if c.stage != "running"]
    waits = {
        "reason": "ContainersNotReady",
        "message": f"containers with unready status: {_names(unready)}",
    }
    if phase == "Succeeded":
        waits = {"reason": "PodCompleted"}

    def condition(kind: str, holds: bool, why: Mapping[str, str]) -> dict[str, Any]:
        text = "True" if holds else "False"
        return {
            "type": kind,
            "status": text,
            "lastProbeTime": None,
            "lastTransitionTime": timestamp(now_s),
            **({} if holds else why),
        }

    status: dict[str, Any] = {
        "phase": phase,
        "conditions": [
            condition(
                "Initialized", is_initialized or is_over, {"reason": "ContainersNotInitialized"}
            ),
            condition("Ready", is_ready, waits),
            condition("ContainersReady", is_ready, waits),
            condition("PodScheduled", True, {}),
        ],
        "hostIP": host_ip,
        "startTime": timestamp(started_s),
        "containerStatuses": [c.status() for c in mains],
        "qosClass": "BestEffort",
    }
    for shown in status["containerStatuses"]:
        if device_health and device_health.get(shown["name"]):
            shown["allocatedResourcesStatus"] = device_health[shown["name"]]
    if has_sandbox:
        status["podIP"] = host_ip
        status["podIPs"] = [{"ip": host_ip}]
    if inits:
        status["initContainerStatuses"] = [c.status() for c in inits]
    return status


def rejected_status(reason: str, message: str, started_s: float) -> dict[str, Any]:
    """Status of a pod the kubelet refused; final. The message carries the version's prefix."""
    return {
        "phase": "Failed",
        "reason": reason,
        "message": message,
        "startTime": timestamp(started_s),
    }


def _names(names: list[str]) -> str:
    return f"[{' '.join(names)}]"
