"""The kubelet of its own, on real sockets, with a plugin on the other end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest

from fake_kubelet import actions, api, manifests, watcher
from fake_kubelet.podresources_server import DIRECTORY as POD_RESOURCES
from fake_kubelet.service import FakeKubelet, KubeletService
from tests.fake_kubelet.stub import StubPlugin

pytestmark = pytest.mark.live
R = "example.com/resource"


def pod(name: str, count: int = 1, **annotations: str) -> dict[str, Any]:
    container = {"name": "main", "image": "i", "resources": {"limits": {R: str(count)}}}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }


def with_kubelet(
    root: Path,
    work: Callable[[KubeletService, StubPlugin], Awaitable[None]],
    *,
    https_port: int | None = None,
    **options: Any,
) -> list[tuple[str, dict[str, Any]]]:
    records: list[tuple[str, dict[str, Any]]] = []

    async def run() -> None:
        service = KubeletService(
            root, on_record=lambda kind, fields: records.append((kind, dict(fields))), **options
        )
        plugin = StubPlugin(root)
        await service.start(https_port=https_port)
        await plugin.start()
        try:
            async with asyncio.timeout(40):
                await work(service, plugin)
        finally:
            await plugin.stop()
            await service.close()

    asyncio.run(run())
    return records


async def pod_resources(root: Path, version: str, method: str, **fields: str) -> Any:
    kind = {"GetAllocatableResources": "AllocatableResources"}.get(method, f"{method}PodResources")
    path = root / POD_RESOURCES / "kubelet.sock"
    async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
        call = channel.unary_unary(
            f"/{version}.PodResourcesLister/{method}",
            request_serializer=api.encode,
            response_deserializer=api.message(version, f"{kind}Response").FromString,
        )
        return await call(api.message(version, f"{kind}Request")(**fields))


def test_a_plugin_a_pod_and_its_device(short_path: Path) -> None:
    async def work(kubelet: KubeletService, plugin: StubPlugin) -> None:
        await plugin.register()
        assert await kubelet.until(lambda: kubelet.counts(R) == (2, 2))
        kubelet.create_pod(pod("user"))
        assert await kubelet.until(lambda: kubelet.phase("user") == "Running")
        given = kubelet.given("user", "main")
        assert given is not None
        for version in ("v1", "v1alpha1"):
            listed = await pod_resources(short_path, version, "List")
            (row,) = listed.pod_resources
            assert list(row.containers[0].devices[0].device_ids) == [given.envs["IDS"]]
        found = await pod_resources(short_path, "v1", "GetAllocatableResources")
        assert len(found.devices) == 2
        plugin.send(Dev_1="Unhealthy")
        assert await kubelet.until(lambda: kubelet.counts(R) == (2, 1))
        path = short_path / POD_RESOURCES / "kubelet.sock"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    records = with_kubelet(short_path, work)
    kinds = [kind for kind, _ in records]
    for kind in (
        "plugin.register",
        "plugin.connected",
        "plugin.devices",
        "plugin.call",
        "plugin.answer",
        "node.status",
        "checkpoint.write",
        "podresources.call",
    ):
        assert kind in kinds
    assert not [p for p in short_path.rglob("*") if stat.S_ISSOCK(p.lstat().st_mode)]


def test_restarts_and_crashes_keep_what_pods_hold(short_path: Path) -> None:
    async def work(kubelet: KubeletService, plugin: StubPlugin) -> None:
        await plugin.register()
        await kubelet.until(lambda: kubelet.counts(R) == (2, 2))
        kubelet.create_pod(pod("user"))
        await kubelet.until(lambda: kubelet.phase("user") == "Running")
        held = kubelet.kubelet.devices.allocated(R)
        for action in (actions.RestartKubelet(), actions.CrashKubelet(delay=0.05)):
            kubelet.perform(action)
            assert await kubelet.until(lambda: not plugin.streams and kubelet.kubelet.is_up)
            await kubelet.shell.opened()
            assert not plugin.socket.exists()  # cleared at the start, as 1.28 does
            await plugin.stop()
            await plugin.start()
            await plugin.register()
            assert await kubelet.until(lambda: kubelet.counts(R) == (2, 2))
            assert kubelet.kubelet.devices.allocated(R) == held
        kubelet.perform(actions.StopKubelet())
        assert kubelet.shell.sockets.socket.exists()  # as of a process that is gone
        with pytest.raises(grpc.RpcError):
            await plugin.register()

    with_kubelet(short_path, work)


@pytest.mark.parametrize("size", ["4 MiB less a little", "over 4 MiB", "5 MiB"])
def test_109304_lists_up_to_4_mib_and_not_more(short_path: Path, size: str) -> None:
    bytes_of = {"4 MiB less a little": 4_194_000, "over 4 MiB": 4_194_400, "5 MiB": 5_242_880}

    async def work(kubelet: KubeletService, plugin: StubPlugin) -> None:
        message = api.ListAndWatchResponse()
        rest = bytes_of[size]
        number = 0
        while rest > 0:
            message.devices.add(ID=f"device-{number:040d}", health="Healthy")
            rest -= len(message.devices[-1].SerializeToString()) + 2
            number += 1
        plugin.raw_list = message.SerializeToString()
        await plugin.register()
        if size.startswith("4"):
            assert await kubelet.until(lambda: kubelet.counts(R) == (number, number), 20)
        else:
            ended = lambda: kubelet.kubelet.links.open_streams() == {}  # noqa: E731
            assert await kubelet.until(ended, 20)
            assert kubelet.counts(R) in (None, (0, 0))

    with_kubelet(short_path, work)


@pytest.mark.parametrize("odd", ["", " ", "a/b", "x" * 300, "\u00fc\U0001f600", 'quote"<&>\n'])
def test_ids_with_odd_bytes_go_through(short_path: Path, odd: str) -> None:
    async def work(kubelet: KubeletService, plugin: StubPlugin) -> None:
        plugin.health = {odd: "Healthy"}
        await plugin.register()
        await kubelet.until(lambda: kubelet.counts(R) == (1, 1))
        kubelet.create_pod(pod("user"))
        assert await kubelet.until(lambda: kubelet.phase("user") == "Running")
        given = kubelet.given("user", "main")
        assert given is not None
        assert given.envs["IDS"] == odd
        kubelet.perform(actions.RestartKubelet())
        assert await kubelet.until(lambda: kubelet.kubelet.devices.allocated(R) == {odd})

    with_kubelet(short_path, work)


def test_nonsense_and_silence_from_a_plugin(short_path: Path) -> None:
    async def never(request: Any) -> Any:
        await asyncio.get_running_loop().create_future()

    async def dies(request: Any) -> Any:
        raise RuntimeError("inside the plugin")

    async def work(kubelet: KubeletService, plugin: StubPlugin) -> None:
        await plugin.register()
        await kubelet.until(lambda: kubelet.counts(R) == (2, 2))

        def message(name: str) -> str:
            shown = kubelet.pod(name)
            return "" if shown is None else str(shown["status"].get("message", ""))

        plugin.allocate = lambda request: api.AllocateResponse()
        kubelet.create_pod(pod("empty"))
        assert await kubelet.until(lambda: "no containers return" in message("empty"))
        assert len(kubelet.kubelet.devices.leaked()[R]) == 1
        plugin.allocate = dies
        kubelet.create_pod(pod("dead"))
        assert await kubelet.until(lambda: "inside the plugin" in message("dead"))
        plugin.allocate = never
        kubelet.create_pod(pod("held"))
        kubelet.create_pod({"metadata": {"name": "plain"}, "spec": {"containers": [{"name": "c"}]}})
        await kubelet.until(lambda: plugin.calls[-1] == "Allocate")
        assert kubelet.kubelet.queued == 2
        await plugin.stop()
        assert await kubelet.until(lambda: kubelet.phase("plain") == "Running")
        assert "rpc error: code = " in message("held")

    with_kubelet(short_path, work)


def test_garbage_half_open_and_a_thousand_connections(short_path: Path) -> None:
    async def work(kubelet: KubeletService, plugin: StubPlugin) -> None:
        path = str(kubelet.shell.sockets.socket)
        opened = []
        try:
            for number in range(1000):
                connection = socket.socket(socket.AF_UNIX)
                connection.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    connection.connect(path)
                    connection.send(bytes((number % 256,)) * (number % 50))
                opened.append(connection)
                if number % 50 == 0:
                    await asyncio.sleep(0)
            await plugin.register()
            assert await kubelet.until(lambda: kubelet.counts(R) == (2, 2), 20)
        finally:
            for connection in opened:
                connection.close()
        with pytest.raises(grpc.RpcError) as refused:
            await plugin.register(resource_name="nope")
        assert refused.value.details() == 'the ResourceName "nope" is invalid'
        with pytest.raises(grpc.RpcError) as unsupported:
            await plugin.register(version="v1alpha")
        assert "is not supported by kubelet" in str(unsupported.value.details())

    with_kubelet(short_path, work)


@pytest.mark.parametrize("fault", ["none", "name", "version", "type"])
def test_the_plugin_watcher_finds_registers_and_forgets(short_path: Path, fault: str) -> None:
    async def work(kubelet: KubeletService, plugin: StubPlugin) -> None:
        told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        found = StubPlugin(short_path, "w-1", resource="example.com/watched")
        found.socket = short_path / "var/lib/kubelet/plugins_registry/w.sock"

        async def info(request: bytes, context: Any) -> Any:
            return api.message("pluginregistration", "PluginInfo")(
                type="Odd" if fault == "type" else "DevicePlugin",
                name="nope" if fault == "name" else found.resource,
                supported_versions=["v9" if fault == "version" else "v1beta1"],
            )

        async def notify(request: Any, context: Any) -> Any:
            told.set_result((request.plugin_registered, request.error))
            return api.message("pluginregistration", "RegistrationStatusResponse")()

        unary = grpc.unary_unary_rpc_method_handler
        status = api.message("pluginregistration", "RegistrationStatus").FromString
        methods = {
            "GetInfo": unary(info, response_serializer=api.encode),
            "NotifyRegistrationStatus": unary(notify, status, api.encode),
        }
        await found.start(("pluginregistration.Registration", methods))
        registered, error = await told
        assert registered is (fault == "none")
        texts = {
            "none": "",
            "name": 'invalid name of device plugin socket: the ResourceName "nope" is invalid',
            "version": "manager version, v1beta1, is not among plugin supported versions [v9]",
            "type": "no handler registered for plugin type: Odd",
        }
        assert error.startswith(texts[fault])
        if fault == "none":
            assert await kubelet.until(lambda: kubelet.counts(found.resource) == (1, 1))
            found.socket.unlink()
            assert await kubelet.until(lambda: kubelet.counts(found.resource) == (1, 0))
        await found.stop()

    with_kubelet(short_path, work)


@pytest.mark.parametrize("is_retried", [False, True])
def test_127457_a_plugin_that_cannot_say_who_it_is_waits_long(
    short_path: Path, monkeypatch: pytest.MonkeyPatch, is_retried: bool
) -> None:
    if is_retried:
        monkeypatch.setattr(watcher, "RETRY_S", 0.0)
    monkeypatch.setattr(watcher, "LOOK_S", 0.05)

    async def work(kubelet: KubeletService, plugin: StubPlugin) -> None:
        asked = dict.fromkeys("abc", 0)
        plugins = []

        async def serve(name: str) -> None:
            made = StubPlugin(short_path, f"{name}-1", resource=f"example.com/{name}")
            made.socket = short_path / f"var/lib/kubelet/plugins_registry/{name}.sock"

            async def info(request: bytes, context: Any) -> Any:
                asked[name] += 1
                if name == "a" and asked[name] == 1:
                    await context.abort(grpc.StatusCode.UNKNOWN, "not yet")
                return api.message("pluginregistration", "PluginInfo")(
                    type="DevicePlugin", name=made.resource, supported_versions=["v1beta1"]
                )

            async def notify(request: Any, context: Any) -> Any:
                return api.message("pluginregistration", "RegistrationStatusResponse")()

            unary = grpc.unary_unary_rpc_method_handler
            status = api.message("pluginregistration", "RegistrationStatus").FromString
            methods = {
                "GetInfo": unary(info, response_serializer=api.encode),
                "NotifyRegistrationStatus": unary(notify, status, api.encode),
            }
            await made.start(("pluginregistration.Registration", methods))
            plugins.append(made)

        # Each that is found later proves that the kubelet looked at all of them again.
        for name in asked:
            await serve(name)
            if name != "a":
                there = f"example.com/{name}"
                assert await kubelet.until(lambda r=there: kubelet.counts(r) == (1, 1))  # type: ignore[misc]
        if is_retried:
            assert await kubelet.until(lambda: kubelet.counts("example.com/a") == (1, 1))
        assert asked["a"] == 1 + is_retried
        for made in plugins:
            await made.stop()

    with_kubelet(short_path, work)


def test_https_asks_for_a_token_and_tls_1_3(short_path: Path) -> None:
    async def work(kubelet: KubeletService, plugin: StubPlugin) -> None:
        await plugin.register()
        await kubelet.until(lambda: kubelet.counts(R) == (2, 2))
        kubelet.create_pod(pod("user"))
        await kubelet.until(lambda: kubelet.phase("user") == "Running")
        https = kubelet.shell.https
        assert https is not None
        assert stat.S_IMODE(https.token.stat().st_mode) == 0o600
        trusted = ssl.create_default_context(cafile=str(https.authority))
        headers = {"Authorization": f"Bearer {https.token.read_text()}"}
        url = f"https://127.0.0.1:{https.port}"

        async with aiohttp.ClientSession(headers=headers) as session:

            async def get(path: str, **more: Any) -> tuple[int, str]:
                async with session.get(url + path, ssl=trusted, **more) as answer:
                    return answer.status, await answer.text()

            assert await get("/healthz") == (200, "ok")
            status, text = await get("/pods")
            assert json.loads(text)["items"][0]["status"]["phase"] == "Running"
            status, text = await get("/containerLogs/default/user/main")
            assert text.startswith("IDS=Dev-")
            assert (await get("/containerLogs/default/user/other"))[0] == 404
            name = "kubelet_device_plugin_alloc_duration_seconds_count"
            assert name in (await get("/metrics"))[1]
            assert 'pod="user"' in (await get("/metrics/resource"))[1]
            assert (await get("/nothing"))[0] == 404
            assert (await get("/pods", headers={"Authorization": "Bearer no"}))[0] == 401
            kubelet.shell.sockets.failure = "broken"
            assert await get("/healthz/ping") == (200, "ok")
            status, text = await get("/healthz")
            assert status == 500
            assert "device registration error" in text
            old = ssl.create_default_context(cafile=str(https.authority))
            old.maximum_version = ssl.TLSVersion.TLSv1_2
            with pytest.raises(aiohttp.ClientConnectorError):
                await session.get(f"{url}/pods", ssl=old)

    with_kubelet(short_path, work, https_port=0, version="1.32")


def test_the_synchronous_python_api(short_path: Path) -> None:
    with FakeKubelet(short_path, version="1.34") as kubelet:
        kubelet.call(lambda k: k.create_pod(pod("waits")))
        assert kubelet.until(lambda k: k.phase("waits") == "Running")
        assert kubelet.call(lambda k: k.counts(R)) is None
        with pytest.raises(ValueError, match="not a pod"):
            kubelet.call(lambda k: k.create_pod({}))
    assert not (short_path / "var/lib/kubelet/device-plugins/kubelet.sock").exists()


def test_the_command_serves_takes_pods_from_files_and_obeys(short_path: Path) -> None:
    command = [sys.executable, "-m", "fake_kubelet", "--root", str(short_path)]

    def do(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, "--do", *words], capture_output=True, text=True)

    gone = do("status")
    assert gone.returncode == 4
    assert "Next: " in gone.stderr
    process = subprocess.Popen(
        [*command, "--resource-log", "--journal", str(short_path / "j")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert process.stdout is not None
        assert "kubelet 1.28" in process.stderr.readline()

        async def plug() -> None:
            plugin = StubPlugin(short_path)
            await plugin.start()
            await plugin.register()
            line = await asyncio.to_thread(process.stdout.readline)
            assert line.split()[1:] == [R, "capacity=2", "allocatable=2"]
            manifest = short_path / manifests.DIRECTORY / "p.yaml"
            await asyncio.to_thread(manifest.write_text, json.dumps(pod("file")))
            async with asyncio.timeout(20):
                while "Allocate" not in plugin.calls:
                    await asyncio.sleep(0.02)
            shown = json.loads((await asyncio.to_thread(do, "status")).stdout)
            assert len(shown["pods"]["default/file"]["devices"]["main"][R]) == 1
            cut = await asyncio.to_thread(do, "stream-cut", f"resource={R}")
            assert json.loads(cut.stdout)["up"] is True
            line = await asyncio.to_thread(process.stdout.readline)
            assert line.split()[1:] == [R, "capacity=2", "allocatable=0"]
            await plugin.stop()

        asyncio.run(plug())
        for words, text in (
            (["nope"], "unknown action 'nope'"),
            (["rpc", "method=Allocate"], "action missing"),
            (["rpc", "method=x", "action=hold"], "wanted Register or "),
            (["node-sync", "seconds=0"], "wanted more than 0"),
        ):
            bad = do(*words)
            assert bad.returncode == 2
            assert text in bad.stderr
    finally:
        process.terminate()
        assert process.wait(20) == 0
        process.communicate()
    kinds = [json.loads(line)["kind"] for line in (short_path / "j").read_text().splitlines()]
    assert "plugin.call" in kinds


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--version", "1.99"], "wanted 1.19 to 1.37"),
        (["--switch", "no=x"], "switch 'no' is unknown"),
    ],
)
def test_bad_arguments_are_said(short_path: Path, arguments: list[str], text: str) -> None:
    command = [sys.executable, "-m", "fake_kubelet", "--root", str(short_path), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 2
    assert text in ended.stderr
    assert "Traceback" not in ended.stderr
