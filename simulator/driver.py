"""The driver's side of calls that change something, or ask for what the image does not hold. Pure.

Each is carried out on the hardware model; the answer is a driver code and the out parameters.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fake_dcmi import calls, packing
from fake_dcmi.asks import Ask
from simulator.faces import container_hash
from simulator.hardware.model import IN_BAND, OUT_OF_BAND, Chip, Hardware
from simulator.hardware.vnpu import CHOOSE

OK = 0
INVALID = -8001
NOT_PERMITTED = -8002
NOT_SUPPORTED = -8255
ALL_CARDS = 0xFF
ROCE_PORT = 1
MESH_TASKS = (0, 1)
MESH_TARGETS = 48
# Limits of the HCCS ping task, from its clients: packet bytes, packets, interval, task interval.
MESH_LIMITS = {
    "pkt_size": (1792, 3000), "pkt_send_num": (1, 1000), "pkt_interval": (1, 1000),
    "task_interval": (1, 60),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The code of a call and its out parameters by name."""

    code: int
    values: Mapping[str, Any] = field(default_factory=dict)


def carry_out(hardware: Hardware, ask: Ask, now: float) -> Outcome:
    """Do what a call asks for."""
    handler = _HANDLERS.get(ask.function)
    if handler is None:
        return Outcome(code=NOT_SUPPORTED)
    if calls.table()[ask.function].of == "node":
        return handler(hardware, None, ask.arguments, now)
    try:
        chip = hardware.chip(ask.card_id, ask.device_id)
    except LookupError:
        return Outcome(code=INVALID)
    return handler(hardware, chip, ask.arguments, now)


Handler = Callable[[Hardware, Any, Mapping[str, Any], float], Outcome]


def _reset(hardware: Hardware, chip: Chip, given: Mapping[str, Any], now: float) -> Outcome:
    channel = int(given.get("channel_type", IN_BAND))
    is_duo = hardware.profile.family == "310P" and hardware.profile.chips_per_card > 1
    if is_duo and chip.device_id != 0:
        return Outcome(code=NOT_SUPPORTED)
    return Outcome(code=hardware.reset(chip, channel, now))


def _reset_out_of_band(
    hardware: Hardware, chip: Chip, given: Mapping[str, Any], now: float
) -> Outcome:
    return Outcome(code=hardware.reset(chip, OUT_OF_BAND, now))


def _pre_reset(hardware: Hardware, chip: Chip, given: Mapping[str, Any], now: float) -> Outcome:
    return Outcome(code=hardware.pre_reset(chip))


def _rescan(hardware: Hardware, chip: Chip, given: Mapping[str, Any], now: float) -> Outcome:
    return Outcome(code=hardware.rescan(chip))


def _create_slice(hardware: Hardware, chip: Chip, given: Mapping[str, Any], now: float) -> Outcome:
    wanted = packing.unpack("dcmi_create_vdev_res_stru", given["vdev"])
    code, vdev_id = chip.slices.create(
        packing.text(wanted["template_name"]), wanted["vdev_id"] & CHOOSE
    )
    made = packing.pack(
        "dcmi_create_vdev_out",
        {"vdev_id": vdev_id, "pcie_bus": chip.bus, "pcie_func": vdev_id % 16, "vfg_id": 0},
    )
    return Outcome(code=code, values={"out": made})


def _destroy_slice(hardware: Hardware, chip: Chip, given: Mapping[str, Any], now: float) -> Outcome:
    vdev_id = int(given["vdevid"]) & CHOOSE
    if vdev_id == CHOOSE:  # every slice of the chip
        codes = [chip.slices.destroy(one.vdev_id) for one in list(chip.slices)]
        return Outcome(code=next((code for code in codes if code), OK))
    return Outcome(code=chip.slices.destroy(vdev_id))


def _node_setting(name: str, param: str, allowed: tuple[int, ...]) -> Handler:
    def handle(hardware: Hardware, chip: Any, given: Mapping[str, Any], now: float) -> Outcome:
        value = int(given[param])
        if value not in allowed:
            return Outcome(code=INVALID)
        hardware.node_settings[name] = value
        return Outcome(code=OK)

    return handle


def _chip_setting(name: str, param: str, allowed: tuple[int, ...]) -> Handler:
    def handle(hardware: Hardware, chip: Chip, given: Mapping[str, Any], now: float) -> Outcome:
        value = int(given[param])
        if value not in allowed:
            return Outcome(code=INVALID)
        chip.settings[name] = value
        return Outcome(code=OK)

    return handle


def _clear(*names: str) -> Handler:
    def handle(hardware: Hardware, chip: Chip, given: Mapping[str, Any], now: float) -> Outcome:
        for name in names:
            chip.settings.pop(name, None)
        return Outcome(code=OK)

    return handle


def _set_ip(hardware: Hardware, chip: Chip, given: Mapping[str, Any], now: float) -> Outcome:
    if given["input_type"] != ROCE_PORT or given["port_id"] != 0:
        return Outcome(code=INVALID)
    address = packing.unpack("dcmi_ip_addr", given["ip"])
    mask = packing.unpack("dcmi_ip_addr", given["mask"])
    if address["ip_type"] == 1:
        chip.settings["ip6"] = tuple(address["u_addr"][:16])
        return Outcome(code=OK)
    raw = bytes(mask["u_addr"][:4])
    try:
        ipaddress.IPv4Network(f"0.0.0.0/{ipaddress.IPv4Address(raw)}")
    except ValueError:
        return Outcome(code=INVALID)
    chip.settings["ip"] = tuple(address["u_addr"][:4])
    chip.settings["netmask"] = tuple(raw)
    return Outcome(code=OK)


def _set_gateway(hardware: Hardware, chip: Chip, given: Mapping[str, Any], now: float) -> Outcome:
    if given["input_type"] != ROCE_PORT or given["port_id"] != 0:
        return Outcome(code=INVALID)
    chip.settings["gateway"] = tuple(packing.unpack("dcmi_ip_addr", given["gateway"])["u_addr"][:4])
    return Outcome(code=OK)


def _set_mac(hardware: Hardware, chip: Chip, given: Mapping[str, Any], now: float) -> Outcome:
    address = bytes(given["mac_addr"])
    if given["mac_id"] != 0 or len(address) < 6 or address[0] & 1:
        return Outcome(code=INVALID)
    chip.settings["mac"] = tuple(address[:6])
    return Outcome(code=OK)


def _set_pod_node(hardware: Hardware, chip: Chip, given: Mapping[str, Any], now: float) -> Outcome:
    if given["status"] not in (0, 1):
        return Outcome(code=INVALID)
    chip.settings.setdefault("pod_nodes", {})[int(given["sdid"])] = int(given["status"])
    return Outcome(code=OK)


def _get_pod_node(hardware: Hardware, chip: Chip, given: Mapping[str, Any], now: float) -> Outcome:
    nodes = chip.settings.get("pod_nodes", {})
    return Outcome(code=OK, values={"status": nodes.get(int(given["sdid"]), 0)})


# --- ping meshes: a task runs for ever and always reaches its targets


def _start_hccs_mesh(
    hardware: Hardware, chip: Chip, given: Mapping[str, Any], now: float
) -> Outcome:
    wanted = packing.unpack("dcmi_hccsping_mesh_operate", given["hccsping_mesh"])
    targets = [name for name in packing.text(wanted["dst_addr_list"]).split(",") if name]
    in_limits = all(low <= wanted[name] <= high for name, (low, high) in MESH_LIMITS.items())
    if given["port_id"] != 0 or wanted["task_id"] not in MESH_TASKS or not in_limits:
        return Outcome(code=INVALID)
    if not 0 < len(targets) <= MESH_TARGETS:
        return Outcome(code=INVALID)
    wanted["targets"], wanted["since_s"] = targets, now
    chip.settings.setdefault("hccs_mesh", {})[wanted["task_id"]] = wanted
    return Outcome(code=OK)


def _stop_hccs_mesh(
    hardware: Hardware, chip: Chip, given: Mapping[str, Any], now: float
) -> Outcome:
    stopped = chip.settings.get("hccs_mesh", {}).pop(int(given["task_id"]), None)
    return Outcome(code=OK if stopped else INVALID)


def _hccs_mesh_state(
    hardware: Hardware, chip: Chip, given: Mapping[str, Any], now: float
) -> Outcome:
    runs = int(given["task_id"]) in chip.settings.get("hccs_mesh", {})
    return Outcome(code=OK, values={"state": int(runs)})


def _hccs_mesh_info(
    hardware: Hardware, chip: Chip, given: Mapping[str, Any], now: float
) -> Outcome:
    task = chip.settings.get("hccs_mesh", {}).get(int(given["task_id"]))
    if task is None:
        return Outcome(code=INVALID)
    count = len(task["targets"])
    rounds = max(1, int((now - task["since_s"]) / task["task_interval"]))
    info = packing.pack(
        "dcmi_hccsping_mesh_info",
        {
            "dst_addr": b"".join(name.encode()[:15].ljust(16, b"\0") for name in task["targets"]),
            "suc_pkt_num": [task["pkt_send_num"]] * count,
            "max_time": [12] * count,
            "min_time": [8] * count,
            "avg_time": [10] * count,
            "tp95_time": [11] * count,
            "reply_stat_num": [task["pkt_send_num"]] * count,
            "ping_total_num": [rounds * task["pkt_send_num"]] * count,
            "dest_num": count,
        },
    )
    return Outcome(code=OK, values={"hccsping_mesh_reply": info})


def _start_ub_mesh(hardware: Hardware, chip: Chip, given: Mapping[str, Any], now: float) -> Outcome:
    for raw in given["ubping_mesh"]:
        wanted = packing.unpack("dcmi_ub_ping_mesh_operate", raw)
        if wanted["task_id"] not in MESH_TASKS or not 0 < wanted["dst_num"] <= MESH_TARGETS:
            return Outcome(code=INVALID)
        wanted["since_s"] = now
        chip.settings.setdefault("ub_mesh", {})[wanted["task_id"]] = wanted
    return Outcome(code=OK)


def _stop_ub_mesh(hardware: Hardware, chip: Chip, given: Mapping[str, Any], now: float) -> Outcome:
    stopped = chip.settings.get("ub_mesh", {}).pop(int(given["task_id"]), None)
    return Outcome(code=OK if stopped else INVALID)


def _ub_mesh_state(hardware: Hardware, chip: Chip, given: Mapping[str, Any], now: float) -> Outcome:
    runs = int(given["task_id"]) in chip.settings.get("ub_mesh", {})
    return Outcome(code=OK, values={"state": int(runs)})


def _ub_mesh_info(hardware: Hardware, chip: Chip, given: Mapping[str, Any], now: float) -> Outcome:
    task = chip.settings.get("ub_mesh", {}).get(int(given["task_id"]))
    if task is None:
        return Outcome(code=INVALID)
    count = int(task["dst_num"])
    info = packing.pack(
        "dcmi_ub_ping_mesh_info",
        {
            "src_eid": task["src_eid"],
            "dst_eid_list": task["dst_eid_list"],
            "suc_pkt_num": [task["pkt_send_num"]] * count,
            "max_time": [12] * count,
            "min_time": [8] * count,
            "avg_time": [10] * count,
            "tp95_time": [11] * count,
            "reply_stat_num": [task["pkt_send_num"]] * count,
            "ping_total_num": [task["pkt_send_num"]] * count,
            "dest_num": count,
            "occur_time": int(now * 1000),
        },
    )
    return Outcome(code=OK, values={"count": 1, "ub_ping_mesh_reply": [info]})


_SWITCH = (0, 1)
_HANDLERS: dict[str, Handler] = {
    "dcmi_set_device_reset": _reset,
    "dcmi_reset_device": _reset_out_of_band,
    "dcmi_reset_device_inband": _reset,
    "dcmiv2_reset_device": _reset,
    "dcmi_pre_reset_soc": _pre_reset,
    "dcmi_set_device_pre_reset": _pre_reset,
    "dcmiv2_pre_reset_device": _pre_reset,
    "dcmi_rescan_soc": _rescan,
    "dcmi_set_device_rescan": _rescan,
    "dcmiv2_rescan_device": _rescan,
    "dcmi_create_vdevice": _create_slice,
    "dcmi_set_destroy_vdevice": _destroy_slice,
    "dcmi_set_vdevice_mode": _node_setting("vdevice_mode", "mode", _SWITCH),
    "dcmi_set_vnpu_config_recover_mode": _node_setting("vnpu_recover", "mode", _SWITCH),
    "dcmi_set_multi_die_policy": _node_setting("multi_die_policy", "policy", _SWITCH),
    "dcmi_set_multi_die_policy_config_recover_mode": _node_setting(
        "multi_die_recover", "enable_flag", _SWITCH
    ),
    "dcmi_set_custom_op_config_recover_mode": _node_setting("custom_op_recover", "mode", _SWITCH),
    "dcmi_set_device_share_config_recover_mode": _node_setting(
        "share_recover", "enable_flag", _SWITCH
    ),
    "dcmiv2_set_device_share_config_recover_mode": _node_setting(
        "share_recover", "enable_flag", _SWITCH
    ),
    "dcmi_set_device_share_enable": _chip_setting("share", "enable_flag", _SWITCH),
    "dcmiv2_set_device_share_enable": _chip_setting("share", "enable_flag", _SWITCH),
    "dcmi_set_device_ecc_enable": _chip_setting("ecc_enabled", "enable_flag", _SWITCH),
    "dcmi_config_ecc_enable": _chip_setting("ecc_enabled", "enable_flag", _SWITCH),
    "dcmi_set_nve_level": _chip_setting("nve_level", "level", (0, 1, 2, 3)),
    "dcmi_set_device_clear_ecc_statistics_info": _clear("hbm_ecc"),
    "dcmiv2_clear_device_ecc_stats_info": _clear("hbm_ecc"),
    "dcmi_set_device_clear_pcie_error": _clear("pcie_errors"),
    "dcmi_clear_pcie_error_cnt": _clear("pcie_errors"),
    "dcmi_set_device_clear_tc_pkt_stats": _clear("tc_stats"),
    "dcmi_clear_pfc_duration": _clear("pfc"),
    "dcmi_set_device_ip": _set_ip,
    "dcmi_set_device_gateway": _set_gateway,
    "dcmi_set_device_mac": _set_mac,
    "dcmi_set_spod_node_status": _set_pod_node,
    "dcmi_get_spod_node_status": _get_pod_node,
    "dcmi_start_hccsping_mesh": _start_hccs_mesh,
    "dcmi_stop_hccsping_mesh": _stop_hccs_mesh,
    "dcmi_get_hccsping_mesh_state": _hccs_mesh_state,
    "dcmi_get_hccsping_mesh_info": _hccs_mesh_info,
    "dcmi_start_ub_ping_mesh": _start_ub_mesh,
    "dcmi_stop_ub_ping_mesh": _stop_ub_mesh,
    "dcmi_get_ub_ping_mesh_state": _ub_mesh_state,
    "dcmi_get_ub_ping_mesh_info": _ub_mesh_info,
    "dcmiv2_start_ub_ping_mesh": _start_ub_mesh,
    "dcmiv2_stop_ub_ping_mesh": _stop_ub_mesh,
    "dcmiv2_get_ub_ping_mesh_state": _ub_mesh_state,
    "dcmiv2_get_ub_ping_mesh_info": _ub_mesh_info,
}


def handled() -> frozenset[str]:
    """The functions that are carried out here."""
    return frozenset(_HANDLERS)


def occupy_slice(chip: Chip, vdev_id: int, container: str) -> None:
    """A container starts to use a slice."""
    chip.slices.occupy(vdev_id, container_hash(container))
