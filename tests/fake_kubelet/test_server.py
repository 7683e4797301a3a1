"""The kubelet's sockets with the reference plugin as a real process on the other end."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from fake_dcmi import host_files, place
from fake_dcmi.image import ImageWriter
from fake_kubelet import api
from fake_kubelet.device_manager import check_registration
from fake_kubelet.effects import (
    AnswerRegister,
    CallPlugin,
    Connect,
    Disconnect,
    OpenSockets,
    Watch,
)
from fake_kubelet.messages import (
    Allocate,
    AllocateResponse,
    Answer,
    CallFailed,
    Device,
    PluginOptions,
    RegisterRequest,
)
from fake_kubelet.server import PluginSockets, SocketPathTooLong
from simulator.faces import image_state
from simulator.hardware.faults import fault_levels
from simulator.hardware.model import Hardware, load_profile

pytestmark = pytest.mark.live


class Kubelet:
    """Keeps what arrives and wakes whoever waits for it."""

    def __init__(self, root: Path) -> None:
        self.sockets = PluginSockets(root, self)
        self.registered: list[RegisterRequest] = []
        self.lists: list[tuple[Device, ...]] = []
        self.ended: list[int] = []
        self.answers: dict[int, Answer] = {}
        self._changed = asyncio.Event()
        self._clients = 0

    def register(self, request: RegisterRequest) -> int:
        check_registration(request)
        self._clients += 1
        self._note(self.registered.append, request)
        self.sockets.carry_out(Connect(self._clients, request.resource_name, request.endpoint))
        return self._clients

    def plugin_connected(self, client: int, options: PluginOptions | None) -> None:
        self.sockets.carry_out(Watch(client))
        self.sockets.carry_out(AnswerRegister(client, None))

    def connect_failed(self, client: int, text: str) -> None:
        self._note(self.ended.append, client)
        self.sockets.carry_out(AnswerRegister(client, text))

    def devices_reported(self, client: int, devices: Iterable[Device]) -> None:
        self._note(self.lists.append, tuple(devices))

    def stream_ended(self, client: int) -> None:
        self._note(self.ended.append, client)

    def call_answered(self, call: int, outcome: Answer) -> None:
        self.answers[call] = outcome
        self._changed.set()

    def allocate(self, call: int, client: int, ids: tuple[str, ...]) -> None:
        self.sockets.carry_out(CallPlugin(call, client, Allocate("huawei.com/Ascend910", ids)))

    def _note(self, add: Callable[..., None], value: object) -> None:
        add(value)
        self._changed.set()

    async def until(self, claim: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not claim():
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def node(root: Path, *arguments: str) -> AsyncIterator[tuple[Kubelet, Hardware, ImageWriter]]:
    hardware = Hardware(load_profile("atlas-800t-a2-910b3"))
    files = host_files.plan(phy_ids=range(8), driver_version="25.2.0", fault_levels=fault_levels())
    place.materialize(files, root)
    writer = ImageWriter(root / host_files.IMAGE, image_state(hardware), boot_id=1)
    kubelet = Kubelet(root)
    kubelet.sockets.carry_out(OpenSockets("all_files"))
    async with asyncio.timeout(10):
        while not kubelet.sockets.socket.exists():
            await asyncio.sleep(0.01)
    plugin = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "simulator.plugin.process", "--root", str(root), *arguments
    )
    try:
        yield kubelet, hardware, writer
    finally:
        if plugin.returncode is None:
            plugin.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(plugin.wait(), 10) == 0
        await kubelet.sockets.close()
        writer.close()


def on_node(root: Path, work: Callable[..., Awaitable[None]], *arguments: str) -> None:
    async def run() -> None:
        async with node(root, *arguments) as (kubelet, hardware, writer):
            await work(kubelet, hardware, writer)

    asyncio.run(run())


def test_plugin_registers_reports_and_allocates(short_path: Path) -> None:
    async def work(kubelet: Kubelet, hardware: Hardware, writer: ImageWriter) -> None:
        await kubelet.until(lambda: bool(kubelet.lists))
        assert kubelet.registered[0].resource_name == "huawei.com/Ascend910"
        assert [d.id for d in kubelet.lists[0]] == [f"Ascend910-{n}" for n in range(8)]
        kubelet.allocate(1, 1, ("Ascend910-3", "Ascend910-1"))
        kubelet.allocate(2, 1, ("Ascend910-9",))
        kubelet.allocate(3, 99, ("Ascend910-0",))
        await kubelet.until(lambda: len(kubelet.answers) == 3)
        good = kubelet.answers[1]
        assert isinstance(good, AllocateResponse)
        assert good.envs["ASCEND_VISIBLE_DEVICES"] == "1,3"
        assert kubelet.answers[2] == CallFailed(
            "rpc error: code = Unknown desc = plugin doesn't have device Ascend910-9"
        )
        closed = kubelet.answers[3]
        assert isinstance(closed, CallFailed)
        assert closed.text.startswith("rpc error: code = Canceled")
        directory = kubelet.sockets.directory
        assert stat.S_IMODE(directory.stat().st_mode) == 0o750
        for name in ("kubelet.sock", "Ascend910.sock"):
            found = (directory / name).stat()
            assert stat.S_ISSOCK(found.st_mode)
            assert stat.S_IMODE(found.st_mode) == 0o600
            assert found.st_uid == os.geteuid()

    on_node(short_path, work)
    assert list((short_path / "var/lib/kubelet/device-plugins").iterdir()) == []


def test_devices_style_names_device_files(short_path: Path) -> None:
    async def work(kubelet: Kubelet, hardware: Hardware, writer: ImageWriter) -> None:
        await kubelet.until(lambda: bool(kubelet.lists))
        kubelet.allocate(1, 1, ("Ascend910-3",))
        await kubelet.until(lambda: 1 in kubelet.answers)
        answer = kubelet.answers[1]
        assert isinstance(answer, AllocateResponse)
        assert "/dev/davinci3" in [device.host_path for device in answer.devices]
        assert {device.permissions for device in answer.devices} == {"rw"}

    on_node(short_path, work, "--answer", "devices")


def test_card_that_drops_is_reported_within_a_poll(short_path: Path) -> None:
    async def work(kubelet: Kubelet, hardware: Hardware, writer: ImageWriter) -> None:
        await kubelet.until(lambda: bool(kubelet.lists))
        hardware.drop(5)
        writer.publish(image_state(hardware))
        await kubelet.until(lambda: len(kubelet.lists) == 2)
        assert [d.id for d in kubelet.lists[1] if d.health != "Healthy"] == ["Ascend910-5"]

    on_node(short_path, work)


def test_kubelet_restart_makes_the_plugin_register_again(short_path: Path) -> None:
    async def work(kubelet: Kubelet, hardware: Hardware, writer: ImageWriter) -> None:
        await kubelet.until(lambda: bool(kubelet.lists))
        kubelet.sockets.carry_out(Disconnect(1))
        kubelet.sockets.carry_out(OpenSockets("all_files"))
        await kubelet.until(lambda: len(kubelet.registered) == 2 and len(kubelet.lists) >= 2)
        assert 1 in kubelet.ended

    on_node(short_path, work)


def test_bad_registrations_are_refused_and_garbage_does_no_harm(short_path: Path) -> None:
    async def run() -> None:
        kubelet = Kubelet(short_path)
        kubelet.sockets.carry_out(OpenSockets("all_files"))
        while not kubelet.sockets.socket.exists():
            await asyncio.sleep(0.01)
        _, writer = await asyncio.open_unix_connection(str(kubelet.sockets.socket))
        writer.write(b"\x00garbage\xff" * 100)
        await writer.drain()
        async with grpc.aio.insecure_channel(f"unix:{kubelet.sockets.socket}") as channel:
            call = channel.unary_unary(
                api.REGISTER,
                request_serializer=api.encode,
                response_deserializer=api.Empty.FromString,
            )
            for version, name, text in (
                ("v1", "a.b/c", "is not supported by kubelet"),
                ("v1beta1", "nope", 'the ResourceName "nope" is invalid'),
            ):
                request = api.RegisterRequest(
                    version=version, endpoint="x.sock", resource_name=name
                )
                with pytest.raises(grpc.RpcError) as error:
                    await call(request)
                assert error.value.code() is grpc.StatusCode.UNKNOWN
                assert text in error.value.details()
        writer.close()
        await kubelet.sockets.close()

    asyncio.run(run())


def test_root_too_deep_for_sockets_is_said_at_once(short_path: Path) -> None:
    with pytest.raises(SocketPathTooLong, match="107"):
        Kubelet(short_path / ("x" * 100))
