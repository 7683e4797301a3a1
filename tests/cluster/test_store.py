"""The store keeps versions, refuses in Kubernetes' words and tells listeners the truth."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from simulator.cluster.admission import quantity, whole
from simulator.cluster.cluster import Cluster
from simulator.cluster.errors import ApiError
from simulator.cluster.scheduler import Bind, Unschedulable, schedule
from simulator.cluster.store import Store, WatchEvent

R = "huawei.com/Ascend910"


def cluster() -> Cluster:
    numbers = itertools.count(1)
    waiting: list[Any] = []
    made = Cluster(now=lambda: 1e9, uid=lambda: f"uid-{next(numbers)}", defer=waiting.append)
    made.pending = waiting  # type: ignore[attr-defined]
    return made


def settle(made: Cluster) -> None:
    waiting = made.pending  # type: ignore[attr-defined]
    for _ in range(100):
        if not waiting:
            return
        waiting.pop(0)()
    pytest.fail("the control plane never comes to rest")


def pod(name: str = "p", *, cards: object = None, requests: object = None, **spec: Any) -> Any:
    container: dict[str, Any] = {"name": "main", "image": "busybox"}
    resources: dict[str, Any] = {}
    if cards is not None:
        resources["limits"] = {R: cards}
    if requests is not None:
        resources["requests"] = {R: requests}
    if resources:
        container["resources"] = resources
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def node(name: str = "n1", cards: int = 8, **spec: Any) -> Any:
    allocatable = {R: str(cards), "pods": "110", "cpu": "8"}
    labels = {"kubernetes.io/arch": "amd64"}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"allocatable": allocatable},
    }


def refusal(store: Store, plural: str, obj: Any, namespace: str = "default") -> ApiError:
    with pytest.raises(ApiError) as error:
        store.create(plural, obj, namespace)
    return error.value


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("1k", 1000), ("1Ki", 1024), ("500m", None), ("1000m", 1), ("2e3", 2000),
     ("0.5", None), ("1.0", 1), ("-1", -1), ("", None), ("x", None), ("1e999999", None),
     (".", None), ("+", None)],
)  # fmt: skip
def test_quantities(text: str, value: int | None) -> None:
    assert whole(text) == value


@given(st.text(max_size=12))
def test_no_text_makes_quantity_crash(text: str) -> None:
    parsed = quantity(text)
    assert parsed is None or parsed[1] > 0


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        (pod(cards="500m"), f'limits[{R}]: Invalid value: "500m": must be an integer'),
        (pod(cards="-1"), "must be greater than or equal to 0"),
        (pod(cards="x"), "quantities must match"),
        (pod(requests="1"), "Limit must be set for non overcommitable resources"),
        (pod(cards="2", requests="1"), f"must be equal to {R} limit of 2"),
        (pod("Bad_Name"), "a lowercase RFC 1123 subdomain"),
    ],
)
def test_invalid_pods_are_refused_in_kubernetes_words(obj: Any, text: str) -> None:
    error = refusal(cluster().store, "pods", obj)
    assert (error.code, error.reason) == (422, "Invalid")
    assert text in error.message
    assert error.status()["details"]["causes"]


def test_missing_runtime_class_forbids_the_pod() -> None:
    store = cluster().store
    error = refusal(store, "pods", pod(runtimeClassName="ascend"))
    assert error.code == 403
    assert 'pod rejected: RuntimeClass "ascend" not found' in error.message
    store.create("runtimeclasses", {"metadata": {"name": "ascend"}, "handler": "ascend"})
    assert store.create("pods", pod(runtimeClassName="ascend"), "default")


def test_runtime_class_selector_is_merged_or_conflicts() -> None:
    store = cluster().store
    scheduling = {"nodeSelector": {"a": "1"}}
    store.create(
        "runtimeclasses",
        {"metadata": {"name": "c"}, "handler": "c", "scheduling": scheduling},
    )
    made = store.create("pods", pod(runtimeClassName="c"), "default")
    assert made["spec"]["nodeSelector"] == {"a": "1"}
    error = refusal(store, "pods", pod("q", runtimeClassName="c", nodeSelector={"a": "2"}))
    assert "conflict: runtimeClass.scheduling.nodeSelector[a] = 1" in error.message


def test_update_needs_the_newest_version_only_when_one_is_sent() -> None:
    store = cluster().store
    made = store.create("configmaps", {"metadata": {"name": "c"}, "data": {"k": "1"}}, "default")
    store.update("configmaps", made | {"data": {"k": "2"}}, "default")
    with pytest.raises(ApiError, match="the object has been modified"):
        store.update("configmaps", made | {"data": {"k": "3"}}, "default")
    del made["metadata"]["resourceVersion"]
    assert store.update("configmaps", made | {"data": {"k": "3"}}, "default")["data"] == {"k": "3"}


def test_status_update_carries_labels_but_not_spec() -> None:
    store = cluster().store
    made = store.create("nodes", node())
    made["metadata"]["labels"]["x"] = "y"
    made["spec"] = {"unschedulable": True}
    made["status"] = {"allocatable": {R: "7"}}
    updated = store.update("nodes", made, only_status=True)
    assert updated["metadata"]["labels"]["x"] == "y"
    assert updated["spec"] == {}
    assert updated["status"]["allocatable"] == {R: "7"}


def test_bound_pod_is_marked_first_and_removed_with_grace_zero() -> None:
    made = cluster()
    made.store.create("nodes", node())
    made.store.create("pods", pod(), "default")
    settle(made)
    marked = made.store.delete("pods", "p", "default")
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    made.store.delete("pods", "p", "default", grace_s=0)
    assert made.store.find("pods", "p", "default") is None


def test_old_watch_start_is_gone() -> None:
    store = cluster().store
    store.create("configmaps", {"metadata": {"name": "c"}}, "default")
    for count in range(10_050):
        one = store.get("configmaps", "c", "default")
        store.update("configmaps", one | {"data": {"k": str(count)}}, "default")
    with pytest.raises(ApiError) as error:
        store.since(3)
    assert error.value.code == 410


@pytest.mark.parametrize(
    ("the_pod", "nodes", "message"),
    [
        (pod(), [], "no nodes available to schedule pods"),
        (
            pod(cards="9"),
            [node()],
            f"0/1 nodes are available: 1 Insufficient {R}. preemption: "
            "0/1 nodes are available: 1 No preemption victims found for incoming pod.",
        ),
        (
            pod(nodeSelector={"zone": "x"}),
            [node(), node("n2")],
            "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. "
            "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
        ),
        (
            pod(cards="1"),
            [node(taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])],
            "0/1 nodes are available: 1 node(s) had untolerated taint {k: v}. preemption: "
            "0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
        ),
        (
            pod(cards="9"),
            [node(), node("n2", unschedulable=True)],
            f"0/2 nodes are available: 1 Insufficient {R}, 1 node(s) were unschedulable. "
            "preemption: 0/2 nodes are available: 1 No preemption victims found for incoming "
            "pod, 1 Preemption is not helpful for scheduling.",
        ),
    ],
)
def test_scheduler_says_why_not(the_pod: Any, nodes: list[Any], message: str) -> None:
    assert schedule(the_pod, nodes, []) == Unschedulable(message=message)


@given(st.lists(st.integers(min_value=1, max_value=8), max_size=12))
def test_cards_are_never_overcommitted(asks: list[int]) -> None:
    nodes, placed = [node("n1"), node("n2")], []
    for index, count in enumerate(asks):
        one = pod(f"p{index}", cards=str(count))
        outcome = schedule(one, nodes, placed)
        if isinstance(outcome, Bind):
            one["spec"]["nodeName"] = outcome.node
            placed.append(one)
    for name in ("n1", "n2"):
        asked = [
            int(p["spec"]["containers"][0]["resources"]["limits"][R])
            for p in placed
            if p["spec"]["nodeName"] == name
        ]
        assert sum(asked) <= 8


def test_pending_pod_is_bound_once_the_node_has_cards() -> None:
    made = cluster()
    made.store.create("nodes", node(cards=0))
    made.store.create("pods", pod(cards="1"), "default")
    settle(made)
    waiting = made.store.get("pods", "p", "default")
    assert waiting["status"]["conditions"][0]["reason"] == "Unschedulable"
    assert [e["reason"] for e in made.store.list("events")] == ["FailedScheduling"]
    made.store.update("nodes", node(cards=8), only_status=True)
    settle(made)
    assert made.store.get("pods", "p", "default")["spec"]["nodeName"] == "n1"


def test_daemon_set_follows_nodes_and_replaces_failed_pods() -> None:
    made = cluster()
    template = {"metadata": {"labels": {"app": "x"}}, "spec": pod()["spec"]}
    daemon_set = {"metadata": {"name": "x"}, "spec": {"template": template}}
    made.store.create("daemonsets", daemon_set, "kube-system")
    made.store.create("nodes", node())
    settle(made)
    (one,) = made.store.list("pods")
    assert one["metadata"]["name"].startswith("x-")
    one["status"] = {"phase": "Failed"}
    made.store.update("pods", one, "kube-system", only_status=True)
    settle(made)
    (other,) = made.store.list("pods")
    assert other["metadata"]["uid"] != one["metadata"]["uid"]
    assert made.store.get("daemonsets", "x", "kube-system")["status"]["numberReady"] == 0
    made.store.delete("daemonsets", "x", "kube-system")
    settle(made)
    (marked,) = made.store.list("pods")
    assert "deletionTimestamp" in marked["metadata"]


class History(RuleBasedStateMachine):
    """Whatever happens, replaying the watch gives the same objects as a list."""

    def __init__(self) -> None:
        super().__init__()
        self.store = cluster().store
        self.start = self.store.version
        self.told: list[WatchEvent] = []
        self.store.subscribe(self.told.append)

    names = st.sampled_from(["a", "b", "c"])

    @rule(name=names, value=st.integers(0, 3))
    def put(self, name: str, value: int) -> None:
        obj = {"metadata": {"name": name}, "data": {"k": str(value)}}
        if self.store.find("configmaps", name, "default") is None:
            self.store.create("configmaps", obj, "default")
        else:
            self.store.update("configmaps", obj, "default")

    @rule(name=names)
    def delete(self, name: str) -> None:
        if self.store.find("configmaps", name, "default") is not None:
            self.store.delete("configmaps", name, "default")

    @invariant()
    def watch_replays_to_the_list(self) -> None:
        for events in (self.told, self.store.since(self.start)):
            seen: dict[str, Any] = {}
            for event in events:
                if event.change == "DELETED":
                    del seen[event.obj["metadata"]["name"]]
                else:
                    seen[event.obj["metadata"]["name"]] = event.obj
            assert [seen[name] for name in sorted(seen)] == self.store.list("configmaps")


TestHistory = History.TestCase
