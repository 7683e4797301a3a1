"""Calls that change the hardware: from the library over the socket to the model and back."""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_dcmi import asks, calls, packing
from fake_dcmi.image import ImageWriter, function_numbers
from simulator import driver
from simulator.driver_socket import DriverSocket
from simulator.faces import image_state
from simulator.hardware.model import Hardware, Process, load_profile
from tests.fake_dcmi.conftest import LIBRARY

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the driver lets only root change it")
CHOOSE = 0xFFFFFFFF


class Node:
    """A simulator at its socket, and the library."""

    def __init__(self, directory: Path, profile: str) -> None:
        self.hardware = Hardware(load_profile(profile))
        self.now = 0.0
        self.path = directory / "hardware.img"
        self.writer = ImageWriter(self.path, image_state(self.hardware), boot_id=1)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.socket = DriverSocket(self.path, self._handle)
        self._wait(self.socket.start())
        os.environ["NPU_TESTBED_IMAGE"] = str(self.path)
        self.library: Any = ctypes.CDLL(str(LIBRARY))
        self.library.dcmi_init()
        self.library.dcmiv2_init()

    def _wait(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result(10)

    def _handle(self, ask: asks.Ask) -> tuple[int, dict[str, object]]:
        outcome = driver.carry_out(self.hardware, ask, self.now)
        self.writer.publish(image_state(self.hardware, now=self.now))
        return outcome.code, dict(outcome.values)

    def show(self) -> None:
        self.writer.publish(image_state(self.hardware, now=self.now))

    def close(self) -> None:
        if self.thread.is_alive():
            self._wait(self.socket.stop())
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join()
            self.loop.close()
            self.writer.close()
        os.environ.pop("NPU_TESTBED_IMAGE", None)


@pytest.fixture
def a2(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path, "atlas-800t-a2-910b3")
    yield made
    made.close()


@pytest.fixture
def a3(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path, "atlas-900-a3-superpod")
    yield made
    made.close()


def value_of(call: Any, *arguments: object) -> tuple[int, int]:
    out = ctypes.c_int(-1)
    return int(call(*arguments, ctypes.byref(out))), out.value


def test_reset_through_the_library_goes_through_its_boot(a2: Node) -> None:
    library, hardware = a2.library, a2.hardware
    assert library.dcmi_set_device_reset(0, 0, 1) == 0
    boot = library.dcmi_get_device_boot_status
    assert value_of(boot, 3, 0) == (0, 0)  # its ring goes with it, and tells the stage
    assert value_of(library.dcmi_get_device_temperature, 3, 0)[0] == -8012
    a2.now = hardware.profile.boot_s / 2
    a2.show()
    assert value_of(boot, 0, 0) == (0, 2)
    a2.now = hardware.profile.boot_s
    hardware.advance(a2.now)
    a2.show()
    assert value_of(boot, 0, 0) == (0, 16)
    assert library.dcmi_set_device_reset(0, 0, 7) == -8001
    assert library.dcmi_set_device_reset(99, 0, 1) == -8001
    hardware.start_process(hardware.chip(1), Process(pid=1, name="x", memory_mb=1), 40)
    assert library.dcmi_set_device_reset(1, 0, 1) == -8013


def test_out_of_band_reset_in_the_plugins_order(a2: Node) -> None:
    library = a2.library
    a2.hardware.chip(4).settings["outband"] = 1
    a2.show()
    assert value_of(library.dcmi_get_device_outband_channel_state, 4, 0) == (0, 1)
    assert value_of(library.dcmi_get_device_outband_channel_state, 5, 0) == (0, 0)
    assert library.dcmi_pre_reset_soc(4, 0) == 0
    assert library.dcmi_set_device_reset(4, 0, 0) == 0
    assert library.dcmi_rescan_soc(4, 0) == 0
    assert library.dcmi_set_device_reset(5, 0, 0) == -8015


def test_vnpu_is_created_queried_and_destroyed(a2: Node) -> None:
    library = a2.library
    wanted = packing.pack(
        "dcmi_create_vdev_res_stru",
        {"vdev_id": CHOOSE, "vfg_id": CHOOSE, "template_name": "vir05_1c_16g"},
    )
    out = ctypes.create_string_buffer(52)
    assert library.dcmi_create_vdevice(2, 0, wanted, out) == 0
    vdev_id = packing.unpack("dcmi_create_vdev_out", out.raw)["vdev_id"]
    assert vdev_id == 132
    query = library.dcmi_get_device_info
    room, size = ctypes.create_string_buffer(360), ctypes.c_uint(360)
    assert query(2, 0, 52, 1, room, ctypes.byref(size)) == 0
    total = packing.unpack("dcmi_soc_total_resource", room.raw)
    assert (total["vdev_num"], total["vdev_id"][0]) == (1, 132)
    assert packing.unpack("dcmi_computing_resource", total["computing"])["aic"] == 20
    room, size = ctypes.create_string_buffer(224), ctypes.c_uint(224)
    assert query(2, 0, 52, 2, room, ctypes.byref(size)) == 0
    free = packing.unpack("dcmi_soc_free_resource", room.raw)
    assert packing.unpack("dcmi_computing_resource", free["computing"])["aic"] == 15
    for sub in (0, 5):
        room = ctypes.create_string_buffer(struct.pack("<I", vdev_id), 264)
        size = ctypes.c_uint(264)
        assert query(2, 0, 52, sub, room, ctypes.byref(size)) == 0
        one = packing.unpack("dcmi_vdev_query_stru", room.raw)
        info = packing.unpack("dcmi_vdev_query_info", one["query_info"])
        assert packing.text(info["name"]) == "vir05_1c_16g"
    room = ctypes.create_string_buffer(struct.pack("<I", 999), 264)
    assert query(2, 0, 52, 0, room, ctypes.byref(ctypes.c_uint(264))) == -8001
    assert query(2, 0, 52, 1, room, ctypes.byref(ctypes.c_uint(10))) == -8001  # too small
    assert query(2, 0, 52, 9, room, ctypes.byref(ctypes.c_uint(264))) == -8255
    driver.occupy_slice(a2.hardware.chip(2), vdev_id, "someone")
    assert library.dcmi_set_destroy_vdevice(2, 0, vdev_id) == -8013
    a2.hardware.chip(2).slices.occupy(vdev_id, 0)
    assert library.dcmi_set_destroy_vdevice(2, 0, vdev_id) == 0
    assert library.dcmi_set_destroy_vdevice(2, 0, vdev_id) == -8001


def test_addresses_can_be_set_and_read_back(a2: Node) -> None:
    library = a2.library
    ip = packing.pack("dcmi_ip_addr", {"u_addr": bytes((10, 1, 2, 3))})
    mask = packing.pack("dcmi_ip_addr", {"u_addr": bytes((255, 255, 255, 0))})
    odd = packing.pack("dcmi_ip_addr", {"u_addr": bytes((255, 0, 255, 0))})
    assert library.dcmi_set_device_ip(1, 0, 1, 0, ip, mask) == 0
    assert library.dcmi_set_device_ip(1, 0, 1, 0, ip, odd) == -8001
    assert library.dcmi_set_device_ip(1, 0, 0, 0, ip, mask) == -8001
    got, net = ctypes.create_string_buffer(20), ctypes.create_string_buffer(20)
    assert library.dcmi_get_device_ip(1, 0, 1, 0, got, net) == 0
    assert (got.raw[:4], net.raw[:4]) == (ip[:4], mask[:4])
    assert library.dcmi_set_device_gateway(1, 0, 1, 0, ip) == 0
    assert library.dcmi_get_device_gateway(1, 0, 1, 0, got) == 0
    assert got.raw[:4] == ip[:4]
    mac = bytes((2, 1, 2, 3, 4, 5))
    assert library.dcmi_set_device_mac(1, 0, 0, mac, 6) == 0
    assert library.dcmi_set_device_mac(1, 0, 0, b"\1" * 6, 6) == -8001  # a group address
    assert library.dcmi_get_device_mac(1, 0, 0, got, 6) == 0
    assert got.raw[:6] == mac


def test_switches_of_chip_and_node(a2: Node) -> None:
    library = a2.library
    assert library.dcmi_set_device_share_enable(3, 0, 1) == 0
    assert value_of(library.dcmi_get_device_share_enable, 3, 0) == (0, 1)
    assert value_of(library.dcmi_get_device_share_enable, 4, 0) == (0, 0)
    assert library.dcmi_set_device_share_enable(3, 0, 2) == -8001
    assert library.dcmi_set_device_ecc_enable(0, 0, 2, 0) == 0
    ecc = ctypes.create_string_buffer(28)
    assert library.dcmi_get_device_ecc_info(0, 0, 2, ecc) == 0
    assert packing.unpack("dcmi_ecc_info", ecc.raw)["enable_flag"] == 0
    assert library.dcmi_set_multi_die_policy(1) == -8255  # two-die cards only


def test_super_pod_calls(a3: Node) -> None:
    library = a3.library
    assert library.dcmi_set_multi_die_policy(1) == 0
    assert value_of(library.dcmi_get_multi_die_policy) == (0, 1)
    assert library.dcmi_set_spod_node_status(0, 0, 77, 1) == 0
    assert value_of(library.dcmi_get_spod_node_status, 0, 0, 77) == (0, 1)
    assert value_of(library.dcmi_get_spod_node_status, 0, 0, 78) == (0, 0)
    assert library.dcmi_set_spod_node_status(0, 0, 77, 2) == -8001
    room, size = ctypes.create_string_buffer(48), ctypes.c_uint(48)
    assert library.dcmi_get_device_info(5, 1, 12, 1, room, ctypes.byref(size)) == 0
    pod = packing.unpack("dcmi_spod_info", room.raw)
    assert (pod["super_pod_size"], pod["sdid"]) == (384, 5 << 18 | 1 << 16 | 11)
    assert value_of(library.dcmi_get_netdev_brother_device, 1, 0) == (0, 5)


def test_hccs_ping_task_runs_until_it_is_stopped(a3: Node) -> None:
    library = a3.library
    good = {
        "dst_addr_list": "1.2.3.4,5.6.7.8", "pkt_size": 1792, "pkt_send_num": 10,
        "pkt_interval": 10, "timeout": 1, "task_interval": 1, "task_id": 0,
    }  # fmt: skip
    task = packing.pack("dcmi_hccsping_mesh_operate", good)
    assert value_of(library.dcmi_get_hccsping_mesh_state, 0, 0, 0, 0) == (0, 0)
    assert library.dcmi_start_hccsping_mesh(0, 0, 0, task) == 0
    assert value_of(library.dcmi_get_hccsping_mesh_state, 0, 0, 0, 0) == (0, 1)
    reply = ctypes.create_string_buffer(3272)
    assert library.dcmi_get_hccsping_mesh_info(0, 0, 0, 0, reply) == 0
    info = packing.unpack("dcmi_hccsping_mesh_info", reply.raw)
    assert (info["dest_num"], info["suc_pkt_num"][:3]) == (2, [10, 10, 0])
    assert library.dcmi_stop_hccsping_mesh(0, 0, 0, 0) == 0
    assert library.dcmi_stop_hccsping_mesh(0, 0, 0, 0) == -8001
    for wrong in ({"pkt_size": 1}, {"task_id": 2}, {"task_interval": 61}, {"dst_addr_list": ""}):
        task = packing.pack("dcmi_hccsping_mesh_operate", good | wrong)
        assert library.dcmi_start_hccsping_mesh(0, 0, 0, task) == -8001


def test_second_generation_asks_by_device_id(tmp_path: Path) -> None:
    node = Node(tmp_path, "atlas-950-server")
    try:
        library = node.library
        assert library.dcmi_init() == -8255
        assert library.dcmi_set_device_reset(0, 0, 1) == -8255
        assert library.dcmiv2_reset_device(5, 1) == 0
        assert value_of(library.dcmiv2_get_device_boot_status, 5) == (0, 0)
        assert value_of(library.dcmiv2_get_device_boot_status, 4) == (0, 16)
        task = packing.pack(
            "dcmi_ub_ping_mesh_operate",
            {"dst_num": 2, "pkt_send_num": 5, "task_id": 1, "task_interval": 1},
        )
        assert library.dcmiv2_start_ub_ping_mesh(0, 1, task) == 0
        assert value_of(library.dcmiv2_get_ub_ping_mesh_state, 0, 1) == (0, 1)
        reply, count = ctypes.create_string_buffer(2 * 3552), ctypes.c_int()
        function = library.dcmiv2_get_ub_ping_mesh_info
        assert function(0, 1, reply, 2, ctypes.byref(count)) == 0
        assert count.value == 1
        info = packing.unpack("dcmi_ub_ping_mesh_info", reply.raw[:3552])
        assert info["suc_pkt_num"][:3] == [5, 5, 0]
        assert function(0, 1, reply, 0, ctypes.byref(count)) == -8001
    finally:
        node.close()


def test_without_a_simulator_the_driver_gives_its_unspecific_error(a2: Node) -> None:
    a2._wait(a2.socket.stop())
    assert a2.library.dcmi_set_device_reset(0, 0, 1) == -8005
    assert value_of(a2.library.dcmi_get_device_boot_status, 0, 0) == (0, 16)  # reading goes on


def test_a_simulator_that_hangs_does_not_hang_the_caller(tmp_path: Path) -> None:
    path = tmp_path / "hardware.img"
    ImageWriter(path, image_state(Hardware(load_profile("atlas-800t-a2-910b3"))), boot_id=1).close()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{path}.sock")
    listener.listen()
    os.environ["NPU_TESTBED_IMAGE"] = str(path)
    library = ctypes.CDLL(str(LIBRARY))
    library.dcmi_init()
    assert library.dcmi_set_device_reset(0, 0, 1) == -8006  # after its limit of 5 s
    listener.close()


def send(path: Path, raw: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(f"{path}.sock")
        client.sendall(raw)
        client.shutdown(socket.SHUT_WR)
        answer = b""
        while part := client.recv(4096):
            answer += part
        return answer


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\0" * 5,
        struct.pack("<IiiII", 9999, 0, 0, 1, 0),
        struct.pack("<IiiII", 0, 0, 0, 1, 0),
        struct.pack("<IiiII", function_numbers()["dcmi_set_device_reset"], 0, 0, 1, 2**31),
        struct.pack("<IiiII", function_numbers()["dcmi_set_device_reset"], 0, 0, 1, 3) + b"abc",
        struct.pack("<IiiII", function_numbers()["dcmi_set_device_reset"], 0, 0, 1, 9) + b"x" * 9,
    ],
)
def test_nonsense_on_the_socket_ends_its_connection_only(a2: Node, raw: bytes) -> None:
    assert send(a2.path, raw) == b""
    assert a2.library.dcmi_set_device_share_enable(0, 0, 1) == 0


ASKED = sorted(name for name, call in calls.table().items() if call.kind == "ask")


numbers = st.one_of(st.integers(-2, 9), st.integers(-(2**63), 2**63 - 1))


@st.composite
def bodies(draw: st.DrawFn, name: str) -> bytes:
    """Arguments of the right size, and now and then of another."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=300))
    body, count = b"", 1
    for param in calls.table()[name].arguments():
        target = calls.pointed_struct(param)
        if param.name in calls.table()[name].sized:
            body += draw(st.binary(min_size=6, max_size=12))
        elif param.direction == "out":
            continue
        elif target is not None:
            size = target.size * (count if param.is_pointer else 1)
            body += draw(st.binary(min_size=size, max_size=size))
        else:
            number = draw(numbers)
            if param.name == "count":
                count = number = draw(st.integers(1, 3))
            body += struct.pack("<q", number)
    return body


@given(data=st.data(), card=st.integers(-1, 9), device=st.integers(-1, 2))
def test_any_arguments_are_carried_out_or_refused(
    data: st.DataObject, card: int, device: int
) -> None:
    """Whatever a program sends: an answer that fits, or ValueError, which ends the connection."""
    name = data.draw(st.sampled_from(ASKED))
    body = data.draw(bodies(name))
    hardware = Hardware(load_profile("atlas-900-a3-superpod"))
    head = struct.pack("<IiiII", function_numbers()[name], card, device, 1, len(body))
    found, parsed, size = asks.parse_head(head)
    assert (found, size) == (name, len(body))
    try:
        ask = asks.parse(name, parsed, body)
    except ValueError:
        return
    try:
        outcome = driver.carry_out(hardware, ask, 1.0)
    except (LookupError, TypeError, ZeroDivisionError, OverflowError) as error:  # pragma: no cover
        raise AssertionError(f"{name} {ask.arguments}") from error
    asks.answer(name, outcome.code, outcome.values)
    image_state(hardware, now=2.0)
