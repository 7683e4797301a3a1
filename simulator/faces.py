"""From the hardware model to the image that vendor software reads. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from fake_dcmi import packing, support
from fake_dcmi.host_files import PciCard
from fake_dcmi.image import ChipState, NodeState, Rule, Value
from simulator.hardware import script
from simulator.hardware.model import Chip, Hardware
from simulator.hardware.profile import Template
from simulator.hardware.telemetry import Readings
from simulator.hardware.vnpu import Slice

NETWORK_OK, NETWORK_UNCONFIGURED = 0, 6
COMPATIBLE = 1
HBM_MANUFACTURER = 0x56
PCI_SUBDEVICE = 0x0200
NDIE_SALT, VDIE_SALT, DDIE_SALT = 0x4E, 0x56, 0x44
PRINTED_LINK_CHANGES = 8


def image_state(
    hardware: Hardware,
    *,
    now: float = 0.0,
    epoch_s: float = 0.0,
) -> NodeState:
    """Everything the driver shows at `now`; `epoch_s` is the unix time of second 0."""
    profile = hardware.profile
    listed = hardware.listed_cards()
    chips = [_chip(hardware, chip, now, epoch_s, chip.card_id in listed) for chip in hardware]
    if profile.has_mcu:
        chips += [_mcu(hardware, card, now, card in listed) for card in range(hardware.cards)]
    is_v2 = profile.family == "950"
    settings = hardware.node_settings
    return NodeState(
        chips=tuple(chips),
        values={
            "init_code": -8255 if is_v2 else 0,
            "init_v2_code": 0 if is_v2 else -8255,
            "busy_code": hardware.busy_code,
            "driver_health": 0,
            "multi_die_policy": settings.get("multi_die_policy", 0),
            "multi_die_recover": settings.get("multi_die_recover", 0),
            "vdevice_mode": settings.get("vdevice_mode", 0),
            "vnpu_recover": settings.get("vnpu_recover", 1),
            "custom_op_recover": settings.get("custom_op_recover", 0),
            "share_recover": settings.get("share_recover", 0),
            "driver_version": hardware.driver_version,
            "dcmi_version": profile.dcmi_version,
            "tool_version": hardware.driver_version,
            "family": profile.family,
            **_switch(hardware, epoch_s),
        },
        refusals=_refusals(hardware),
        container_codes=support.container_codes(),
        needs_root=support.needs_root(),
        rules=tuple(_rule(rule) for rule in hardware.rules),
        log_calls=hardware.logs_calls,
    )


PEER_KINDS = {"cpu": 0, "npu": 1, "L2": 2, "na": 3}
NO_FAULT_ID = 0xFFFFFFFF
SWITCH_SEVERITY = {"NotHandleFault": 1, "SubHealthFault": 1}


def _switch(hardware: Hardware, epoch_s: float) -> dict[str, Value]:
    active = list(hardware.switch_faults.values())
    return {
        "switch_count": len(active),
        "switch_alarm": tuple(fault.alarm_id for fault, _ in active),
        "switch_fault": tuple(
            NO_FAULT_ID if fault.fault_id is None else fault.fault_id for fault, _ in active
        ),
        "switch_peer": tuple(PEER_KINDS[fault.peer] for fault, _ in active),
        "switch_severity": tuple(SWITCH_SEVERITY.get(fault.level, 2) for fault, _ in active),
        "switch_raised_ms": tuple(int((epoch_s + at) * 1000) for _, at in active),
    }


def _rule(rule: script.Rule) -> Rule:
    return Rule(
        number=rule.number,
        function=rule.function,
        card=rule.card,
        device=rule.device,
        code=rule.code,
        delay_us=round(rule.delay_s * 1e6),
        hang=rule.hang,
        first=rule.first,
        last=rule.last,
        chance=rule.chance,
        seed=rule.seed,
    )


def _refusals(hardware: Hardware) -> Mapping[str, int]:
    profile = hardware.profile
    refused = dict(support.refusals(profile.family))
    if not profile.link_mbps:  # cards without a RoCE port, such as Atlas 300I A2
        for name in _ROCE_CALLS:
            refused.setdefault(name, -8255)
    if not profile.fans:
        refused.setdefault("dcmi_get_device_fan_speed", -8255)
    return refused


_ROCE_CALLS = (
    "dcmi_get_device_ip", "dcmi_set_device_ip", "dcmi_get_device_gateway",
    "dcmi_set_device_gateway", "dcmi_get_device_network_health", "dcmi_get_netdev_pkt_stats_info",
    "dcmi_get_rdma_bandwidth_info", "dcmi_get_netdev_tc_stat_info", "dcmi_get_pfc_duration_info",
    "dcmi_get_device_mac", "dcmi_set_device_mac",
)  # fmt: skip


def pci_cards(hardware: Hardware) -> tuple[PciCard, ...]:
    """Every chip as the kernel shows it on the PCI bus; two NUMA nodes share them."""
    profile, half = hardware.profile, max(1, len(hardware) // 2)
    return tuple(
        PciCard(
            address=f"0000:{chip.bus:02x}:00.0",
            vendor=profile.pci_vendor,
            device=profile.pci_device,
            numa_node=min(1, chip.index // half),
            cpus=near_cpus(hardware, chip),
        )
        for chip in hardware
    )


def near_cpus(hardware: Hardware, chip: Chip) -> str:
    """The CPUs near a chip; a host of 192 is shared out evenly."""
    span = 192 // max(1, len(hardware))
    return f"{chip.index * span}-{chip.index * span + span - 1}"


def die_words(hardware: Hardware, chip: Chip, salt: int) -> tuple[int, ...]:
    """Five words that no other chip of this node or of another seed has."""
    base = f"{hardware.seed}:{chip.phy_id}:{salt}"
    return tuple(zlib.crc32(f"{base}:{part}".encode()) for part in range(5))


def _chip(hardware: Hardware, chip: Chip, now: float, epoch_s: float, is_listed: bool) -> ChipState:
    read = hardware.readings(chip, now)
    values: dict[str, Value] = {
        "alive": chip.alive,
        "is_booting": int(chip.boot_started_s is not None),
        "health": chip.health,
        "boot_status": hardware.boot_status(chip, now),
        **_readings(hardware, chip, read),
        **_identity(hardware, chip),
        **_network(hardware, chip, read),
        **_faults(chip, epoch_s),
        **_processes(chip),
        **_slices(hardware, chip, read),
    }
    for name, pinned in chip.pins.items():
        field, _, index = name.partition(".")
        if index:
            now_there = values.get(field, ())
            items = list(now_there) if isinstance(now_there, (tuple, bytes)) else []
            items += [0] * (int(index) + 1 - len(items))
            items[int(index)] = pinned
            values[field] = tuple(items)
        else:
            values[field] = pinned
    return ChipState(
        card_id=chip.card_id,
        device_id=chip.device_id,
        logic_id=chip.logic_id,
        phy_id=chip.phy_id,
        is_listed=is_listed,
        values=values,
    )


def _mcu(hardware: Hardware, card: int, now: float, is_listed: bool) -> ChipState:
    """The card's controller: its own device id after the chips, power and temperature."""
    first = hardware.chip(card)
    read = hardware.readings(first, now)
    profile = hardware.profile
    return ChipState(
        card_id=card,
        device_id=profile.chips_per_card,
        logic_id=None,
        phy_id=None,
        is_listed=is_listed,
        values={
            "alive": first.dropped_code if first.is_dropped else 0,
            "board_id": profile.board_id,
            "pcb_id": profile.pcb_id,
            "bom_id": profile.bom_id,
            "slot_id": first.slot_id,
            "chip_type": profile.chip_type,
            "chip_name": "Mcu",
            "chip_version": profile.chip_version,
            "temp_c": read.temp_c - 6,
            "power_dw": read.power_dw,
            "boot_status": 16,
        },
    )


def _readings(hardware: Hardware, chip: Chip, read: Readings) -> dict[str, Value]:
    profile = hardware.profile
    use = [0] * 16
    use[1] = read.ddr_pct
    use[2] = read.aicore_pct
    use[3] = read.aicpu_pct
    use[4] = read.ctrlcpu_pct
    use[6] = read.hbm_pct
    use[8] = read.ddr_pct
    use[10] = read.hbm_bandwidth_pct
    use[12] = read.vector_pct
    use[13] = read.npu_pct
    use[14] = read.cube_pct
    memory_free = max(0, profile.ddr_mb - read.ddr_used_mb)
    # The second die of a two-die card has no meter of its own: the card's stands for both.
    has_meter = chip.device_id == 0 or profile.family != "910A3"
    hbm = (
        int(chip.settings.get("ecc_enabled", 1)),
        *chip.settings.get("hbm_ecc", (0, 0, 0, 0, 0, 0)),
    )
    sensors = [0] * 16
    sensors[0] = sensors[1] = sensors[2] = read.temp_c
    sensors[9], sensors[10], sensors[11] = 100, read.temp_c, read.temp_c
    sensors[14] = read.hbm_temp_c
    known = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 9 | 1 << 10 | 1 << 11
    if profile.hbm_mb:
        known |= 1 << 14
    hccs = read.hccs_mbs // 7 if profile.has_hccs else 0
    links = tuple(hccs if 0 < link <= 7 else 0 for link in range(16))
    traffic = read.packets // 7 if profile.has_hccs else 0
    return {
        "utilization_pct": tuple(use),
        "power_dw": read.power_dw if has_meter else 0,
        "card_power_dw": read.power_dw,
        "temp_c": read.temp_c,
        "hbm_temp_c": read.hbm_temp_c,
        "voltage_cv": read.voltage_cv,
        "hbm_mb": profile.hbm_mb,
        "hbm_used_mb": read.hbm_used_mb,
        "hbm_bandwidth_pct": read.hbm_bandwidth_pct,
        "hbm_mhz": profile.hbm_mhz,
        "aicore_mhz": read.aicore_mhz,
        "aicore_rated_mhz": profile.aicore_mhz,
        "vector_mhz": read.aicore_mhz if profile.family == "310P" else 0,
        "ctrlcpu_mhz": profile.ctrlcpu_mhz,
        "aicpu_mhz": profile.ctrlcpu_mhz,
        "aicpu_rated_mhz": profile.ctrlcpu_mhz,
        "aicpu_count": profile.aicpu_count,
        "aicpu_pct": (read.aicpu_pct,) * min(16, profile.aicpu_count),
        "ddr_mb": profile.ddr_mb,
        "ddr_free_mb": memory_free,
        "ddr_mhz": profile.ddr_mhz,
        "hugepage_kb": 2048 if profile.ddr_mb else 0,
        "ecc": (1, 0, 0, 0, 0, 0, 0) * 2 + hbm + (1, 0, 0, 0, 0, 0, 0),
        "fan_count": profile.fans,
        "fan_rpm": (4200,) * profile.fans,
        "llc": (read.aicore_pct, read.aicore_pct, read.hbm_bandwidth_pct * 10),
        "sensor": tuple(sensors),
        "sensor_known": known,
        "pcie_bandwidth": (0, read.aicore_pct // 2, read.aicore_pct // 4) * 7,
        "hccs_tx": tuple(traffic if link else 0 for link in links),
        "hccs_rx": tuple(traffic if link else 0 for link in links),
        "hccs_tx_mbs": links,
        "hccs_rx_mbs": links,
        "hccs_credit": (32 if profile.has_hccs else 0,) * 16,
        "computing_power": profile.aicore_count,
        "outband_state": int(hardware.has_outband(chip)),
        "share_enabled": chip.settings.get("share", 0),
        "custom_op_enabled": chip.settings.get("custom_op", 0),
        "p2p_enabled": chip.settings.get("p2p", 0),
        "nve_level": chip.settings.get("nve_level", 0),
    }


def _identity(hardware: Hardware, chip: Chip) -> dict[str, Value]:
    profile = hardware.profile
    other = chip.card_id + (hardware.cards // 2) * (1 if chip.card_id < hardware.cards // 2 else -1)
    no_brother = profile.family != "910A3" or profile.mainboard_id in (0x1C, 0x1D)
    pod = profile.super_pod_size
    return {
        "chips_in_card": profile.chips_per_card,
        "mcu_id": profile.chips_per_card if profile.has_mcu else -1,
        "cpu_id": -1,
        "brother": -1 if no_brother else other,
        "holder": container_hash(chip.holder),
        "board_id": profile.board_id,
        "pcb_id": profile.pcb_id,
        "bom_id": profile.bom_id,
        "slot_id": chip.slot_id,
        "mainboard_id": profile.mainboard_id,
        "aicore_count": profile.aicore_count,
        "rated_power_w": int(profile.rated_power_w),
        "pci_vendor": profile.pci_vendor,
        "pci_subvendor": profile.pci_vendor,
        "pci_device": profile.pci_device,
        "pci_subdevice": PCI_SUBDEVICE,
        "pci_bus": chip.bus,
        "pci_text": f"0000:{chip.bus:02X}:00.0",
        "compatibility": COMPATIBLE,
        "hbm_manufacturer": HBM_MANUFACTURER if profile.hbm_mb else 0,
        "first_power_on": 1_704_067_200,
        "flash_id": 0xC84019,
        "vdie": die_words(hardware, chip, VDIE_SALT),
        "ndie": die_words(hardware, chip, NDIE_SALT),
        "ddie": die_words(hardware, chip, DDIE_SALT),
        "chip_type": profile.chip_type,
        "chip_name": profile.chip_name,
        "chip_version": profile.chip_version,
        "npu_name": profile.npu_name or profile.chip_name,
        "affinity": near_cpus(hardware, chip),
        "product_type": profile.product_type,
        "product": profile.product,
        "model": profile.product,
        "manufacturer": "NPU Testbed",
        "serial": f"TESTBED{chip.card_id:05d}",
        "firmware_version": "7.7.0.6.236",
        "mcu_version": "23.1.3",
        "vrd_version": "1.0",
        "sdid": (chip.card_id << 18 | chip.device_id << 16 | chip.phy_id) if pod else 0,
        "pod_scale": pod,
        "urma_devices": 2 if profile.family == "950" else 0,
        "urma_eid": bytes((0xFE, 0x80, *[0] * 12, chip.phy_id, 0)),
    }


def _network(hardware: Hardware, chip: Chip, read: Readings) -> dict[str, Value]:
    profile = hardware.profile
    if not profile.link_mbps:
        return {"network_health": NETWORK_OK}
    settings = chip.settings
    changes: tuple[tuple[int, bool], ...] = settings.get("link_changes", ())
    is_up = bool(settings.get("link_up", True)) and not chip.alive
    default_ip = (10, 20, chip.phy_id // 200, 11 + chip.phy_id % 200)
    packets = [0] * 48
    for tx, rx in ((20, 24), (30, 29), (28, 27), (44, 46)):  # mac, all, rc, nic counters of packets
        packets[tx] = packets[rx] = read.packets
    packets[21] = packets[25] = packets[45] = packets[47] = read.bytes
    packets[32] = read.packets
    ip6 = settings.get("ip6")
    return {
        "network_health": settings.get("network_health", NETWORK_UNCONFIGURED),
        "link_up": int(is_up),
        "link_mbps": profile.link_mbps,
        "link_ups": 1 + sum(up for _, up in changes),
        "link_downs": sum(not up for _, up in changes),
        "link_changes": min(len(changes), PRINTED_LINK_CHANGES),
        "link_change_s": tuple(at * 2 + int(up) for at, up in changes[-PRINTED_LINK_CHANGES:]),
        "rdma_tx_mbs": read.rdma_mbs if is_up else 0,
        "rdma_rx_mbs": read.rdma_mbs if is_up else 0,
        "packet_stats": tuple(packets),
        "tc_tx": (read.packets,),
        "tc_rx": (read.packets,),
        "optical_present": int(settings.get("optical_present", True)),
        "optical_temp_c": read.temp_c + 3,
        "optical_mv": 3300,
        "optical_tx_uw": (950,) * 4,
        "optical_rx_uw": (880 if is_up else 0,) * 4,
        "ip": tuple(settings.get("ip", default_ip)),
        "netmask": tuple(settings.get("netmask", (255, 255, 0, 0))),
        "gateway": tuple(settings.get("gateway", (10, 20, 0, 1))),
        "netdetect": tuple(settings.get("netdetect", (10, 20, 0, 1))),
        "vnic_ip": (192, 168, 100, 10 + chip.phy_id % 200),
        "ip6": bytes(ip6 or b""),
        "ip6_set": int(ip6 is not None),
        "mac": tuple(settings.get("mac", (0x02, 0x4E, 0x50, 0x55, 0, chip.phy_id))),
    }


def _faults(chip: Chip, epoch_s: float) -> dict[str, Value]:
    raised = [int((epoch_s + active.raised_s) * 1000) for active in chip.faults.values()]
    return {
        "error_count": len(chip.faults),
        "error_codes": tuple(chip.faults),
        "error_severity": tuple(int(active.severity) for active in chip.faults.values()),
        "error_raised_ms": tuple(raised),
    }


def _processes(chip: Chip) -> dict[str, Value]:
    processes = list(chip.processes.values())
    return {
        "process_count": len(processes),
        "process_pid": tuple(process.pid for process in processes),
        "process_bytes": tuple(process.memory_mb << 20 for process in processes),
        "process_name": b"".join(
            process.name.encode()[:15].ljust(16, b"\0") for process in processes
        ),
    }


def _slices(hardware: Hardware, chip: Chip, read: Readings) -> dict[str, Value]:
    profile = hardware.profile
    slices = list(chip.slices)
    whole = Template(
        name="all",
        aicores=profile.aicore_count,
        aicpus=profile.aicpu_count,
        memory_mb=profile.hbm_mb or profile.ddr_mb,
        media=8,
    )
    total = packing.pack(
        "dcmi_soc_total_resource",
        {
            "vdev_num": len(slices),
            "vdev_id": [one.vdev_id for one in slices],
            "computing": _computing(whole),
            "media": _media(whole),
        },
    )
    free = packing.pack(
        "dcmi_soc_free_resource",
        {"computing": _computing(chip.slices.free()), "media": _media(chip.slices.free())},
    )
    return {
        "vdev_total": total,
        "vdev_free": free,
        "vdev_count": len(slices),
        "vdev_query": b"".join(slice_bytes(one, read) for one in slices),
    }


def slice_bytes(one: Slice, read: Readings) -> bytes:
    """The answer of dcmi_get_device_info 52/0 and 52/5 for one slice."""
    computing = _computing(one.template)
    computing |= {
        "vdev_aicore_utilization": read.aicore_pct if one.is_used else 0,
        "vdev_memory_total": one.template.memory_mb,
        "vdev_memory_free": one.template.memory_mb // (2 if one.is_used else 1),
    }
    info = packing.pack(
        "dcmi_vdev_query_info",
        {
            "name": one.template.name,
            "is_container_used": int(one.is_used),
            "vfid": one.vdev_id % 16,
            "container_id": one.container,
            "computing": computing,
            "media": _media(one.template),
        },
    )
    return packing.pack("dcmi_vdev_query_stru", {"vdev_id": one.vdev_id, "query_info": info})


def _computing(template: Template) -> dict[str, float]:
    return {
        "aic": template.aicores,
        "aiv": template.aicores * 2,
        "memory_size": template.memory_mb,
        "device_aicpu": template.aicpus,
    }


def _media(template: Template) -> dict[str, float]:
    return dict.fromkeys(("jpegd", "jpege", "vpc", "vdec", "pngd", "venc"), template.media)


def container_hash(container: str) -> int:
    """A container's name as the image holds it (FNV-1a, 64 bits); 0 for nobody."""
    if not container:
        return 0
    value = 14695981039346656037
    for byte in container.encode():
        value = ((value ^ byte) * 1099511628211) & (2**64 - 1)
    return value
