"""The hardware image's layout, defined once: Python structures, and the C header made from them.

A node's image is one file: header, node block, script block, event ring, chip blocks. One writer,
any number of readers. A block is two copies behind a sequence number: the low bit of the number
says which copy holds; the writer fills the other one and then adds one. So a writer that dies at
any instruction leaves a whole copy behind, and a reader never waits for it.
`python -m fake_dcmi.layout` prints the C header; a test fails when the committed one differs.
"""

from __future__ import annotations

import ctypes
from typing import Any

from fake_dcmi import api

MAGIC = 0x4E50555445534244  # "NPUTESBD"
VERSION = 3
MAX_CARDS = 64
MAX_CHIPS = 256
MAX_CARD_ID = 256
MAX_DEVICES = 8
MAX_IDS = 256
MAX_ERROR_CODES = 128
MAX_PROCESSES = 32
MAX_VDEVICES = 32
MAX_SWITCH_FAULTS = 64
UTILIZATION_TYPES = 16
EVENT_SLOTS = 2048
MAX_RULES = 64
FUNCTION_SLOTS = 384
NO_CHIP = 0xFFFF

# A gate is what the library looks at first in each call; 0 lets the call through at once.
GATE_CODE = 0xFFFF  # a refusal, as the positive of its code
GATE_SCRIPTED = 1 << 16  # some rule of the script block is about this function

_TYPES: dict[str, Any] = {
    "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64,
    "i32": ctypes.c_int32, "char": ctypes.c_char,
}  # fmt: skip
_C_NAMES = {
    "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t", "i32": "int32_t",
    "char": "char",
}  # fmt: skip

Fields = tuple[tuple[str, str, int], ...]

# (name, type, count); count 1 is a plain field. Units are in the names: mb, mhz, c (degrees C),
# dw (0.1 W), cv (0.01 V), pct.
HEADER: Fields = (
    ("magic", "u64", 1),
    ("version", "u32", 1),
    ("header_size", "u32", 1),
    ("node_size", "u32", 1),
    ("script_size", "u32", 1),
    ("chip_size", "u32", 1),
    ("event_size", "u32", 1),
    ("chip_count", "u32", 1),
    ("event_word", "u32", 1),
    ("total_size", "u64", 1),
    ("boot_id", "u64", 1),
    ("event_count", "u64", 1),
    ("release_word", "u32", 1),
    ("calls_logged", "u32", 1),
    ("gates", "u32", FUNCTION_SLOTS),
    ("container_codes", "u16", FUNCTION_SLOTS),  # what a plain container is told, as a positive
    ("needs_root", "u8", FUNCTION_SLOTS),
)
NODE: Fields = (
    ("listed", "u32", 1),
    ("init_code", "i32", 1),
    ("init_v2_code", "i32", 1),
    ("busy_code", "i32", 1),
    ("driver_health", "u32", 1),
    ("driver_code_count", "u32", 1),
    ("driver_codes", "u32", MAX_ERROR_CODES),
    ("multi_die_policy", "i32", 1),
    ("multi_die_recover", "u32", 1),
    ("vdevice_mode", "i32", 1),
    ("vnpu_recover", "u32", 1),
    ("custom_op_recover", "u32", 1),
    ("share_recover", "u32", 1),
    # active faults of the super-pod's switch
    ("switch_count", "u32", 1),
    ("switch_alarm", "u32", MAX_SWITCH_FAULTS),
    ("switch_fault", "u32", MAX_SWITCH_FAULTS),
    ("switch_peer", "u16", MAX_SWITCH_FAULTS),
    ("switch_severity", "u8", MAX_SWITCH_FAULTS),
    ("switch_raised_ms", "u64", MAX_SWITCH_FAULTS),
    ("by_pair", "u16", MAX_CARD_ID * MAX_DEVICES),
    ("by_logic", "u16", MAX_IDS),
    ("by_phy", "u16", MAX_IDS),
    ("driver_version", "char", 64),
    ("dcmi_version", "char", 32),
    ("tool_version", "char", 32),
    ("family", "char", 16),
)
RULE: Fields = (
    ("number", "u32", 1),
    ("function", "i32", 1),  # -1: every function
    ("card_id", "i32", 1),  # -1: every card
    ("device_id", "i32", 1),
    ("code", "i32", 1),  # 0: the call goes on after the delay
    ("delay_us", "u32", 1),
    ("hang", "u32", 1),
    ("first", "u32", 1),  # matching calls are counted in each process from 1
    ("last", "u32", 1),  # 0: no end
    ("chance", "u32", 1),  # of 2**32; 0: always
    ("seed", "u64", 1),
)
CHIP: Fields = (
    ("card_id", "i32", 1),
    ("device_id", "i32", 1),
    ("logic_id", "u32", 1),
    ("phy_id", "u32", 1),
    ("unit", "u32", 1),  # 0 NPU, 1 MCU, 2 CPU
    ("alive", "i32", 1),  # what calls that need the chip answer; 0 when it lives
    ("is_booting", "u32", 1),
    ("health", "u32", 1),
    ("network_health", "u32", 1),
    ("boot_status", "u32", 1),
    ("power_dw", "i32", 1),
    ("card_power_dw", "i32", 1),
    ("temp_c", "i32", 1),
    ("voltage_cv", "u32", 1),
    ("hbm_temp_c", "i32", 1),
    ("hbm_mb", "u64", 1),
    ("hbm_used_mb", "u64", 1),
    ("hbm_bandwidth_pct", "u32", 1),
    ("hbm_mhz", "u32", 1),
    ("aicore_mhz", "u32", 1),
    ("aicore_rated_mhz", "u32", 1),
    ("ctrlcpu_mhz", "u32", 1),
    ("ddr_mhz", "u32", 1),
    ("vector_mhz", "u32", 1),
    ("aicpu_mhz", "u32", 1),
    ("aicpu_rated_mhz", "u32", 1),
    ("aicpu_count", "u32", 1),
    ("utilization_pct", "u32", UTILIZATION_TYPES),
    ("chips_in_card", "i32", 1),
    ("mcu_id", "i32", 1),
    ("cpu_id", "i32", 1),
    ("brother", "i32", 1),
    ("holder", "u64", 1),  # hash of the container that holds the chip alone; 0: nobody
    ("board_id", "u32", 1),
    ("pcb_id", "u32", 1),
    ("bom_id", "u32", 1),
    ("slot_id", "u32", 1),
    ("mainboard_id", "u32", 1),
    ("aicore_count", "u32", 1),
    ("rated_power_w", "u32", 1),
    ("pci_vendor", "u32", 1),
    ("pci_subvendor", "u32", 1),
    ("pci_device", "u32", 1),
    ("pci_subdevice", "u32", 1),
    ("pci_domain", "u32", 1),
    ("pci_bus", "u32", 1),
    ("pci_slot", "u32", 1),
    ("pci_function", "u32", 1),
    ("work_mode", "u32", 1),
    ("compatibility", "u32", 1),
    ("hbm_manufacturer", "u32", 1),
    ("first_power_on", "u32", 1),
    ("computing_power", "u32", 1),
    ("outband_state", "i32", 1),
    ("share_enabled", "u32", 1),
    ("custom_op_enabled", "u32", 1),
    ("ssh_enabled", "u32", 1),
    ("p2p_enabled", "u32", 1),
    ("nve_level", "u32", 1),
    ("fan_count", "u32", 1),
    ("fan_rpm", "u32", 8),
    ("flash_id", "u64", 1),
    ("ddr_mb", "u64", 1),
    ("ddr_free_mb", "u64", 1),
    ("hugepage_kb", "u64", 1),
    ("hugepages_total", "u64", 1),
    ("hugepages_free", "u64", 1),
    ("aicpu_pct", "u32", 16),
    ("dvpp_pct", "u32", 5),
    ("llc", "u32", 3),
    ("ecc", "u32", 4 * 7),  # DDR, SRAM, HBM, NPU x the seven members of dcmi_ecc_info
    ("sensor_known", "u32", 1),  # bit per sensor id
    ("sensor", "i32", 16),
    ("cgroup_bytes", "u64", 3),
    ("pcie_errors", "u32", 12),
    ("pcie_bandwidth", "u32", 21),
    ("hccs_tx", "u64", 16),
    ("hccs_rx", "u64", 16),
    ("hccs_crc", "u64", 16),
    ("hccs_retry", "u64", 16),
    ("hccs_tx_mbs", "u32", 16),
    ("hccs_rx_mbs", "u32", 16),
    ("hccs_credit", "u32", 16),
    ("sio_errors", "u16", 2),
    ("sdid", "u32", 1),
    ("pod_scale", "u32", 1),
    ("pod_id", "u32", 1),
    ("pod_server", "u32", 1),
    ("pod_chassis", "u32", 1),
    ("pod_type", "u32", 1),
    ("urma_devices", "u32", 1),
    ("urma_eid", "u8", 16),
    # the RoCE port
    ("link_up", "u32", 1),
    ("link_mbps", "u32", 1),
    ("link_ups", "u32", 1),
    ("link_downs", "u32", 1),
    ("link_changes", "u32", 1),
    ("link_change_s", "u64", 8),  # seconds since 1970, oldest first; low bit 1 = UP
    ("rdma_tx_mbs", "u32", 1),
    ("rdma_rx_mbs", "u32", 1),
    ("packet_stats", "u64", 48),  # the 48 counters of dcmi_network_pkt_stats_info
    ("tc_tx", "u64", 8),
    ("tc_rx", "u64", 8),
    ("pfc_tx", "u64", 8),
    ("pfc_rx", "u64", 8),
    ("optical_present", "u32", 1),
    ("optical_temp_c", "i32", 1),
    ("optical_mv", "u32", 1),
    ("optical_tx_uw", "u32", 4),
    ("optical_rx_uw", "u32", 4),
    ("ip", "u8", 4),
    ("netmask", "u8", 4),
    ("gateway", "u8", 4),
    ("ip6", "u8", 16),
    ("ip6_set", "u32", 1),
    ("netdetect", "u8", 4),
    ("vnic_ip", "u8", 4),
    ("mac", "u8", 8),
    # what is active, and who uses the chip
    ("error_count", "u32", 1),
    ("error_codes", "u32", MAX_ERROR_CODES),
    ("error_severity", "u8", MAX_ERROR_CODES),
    ("error_raised_ms", "u64", MAX_ERROR_CODES),
    ("process_count", "u32", 1),
    ("process_pid", "i32", MAX_PROCESSES),
    ("process_bytes", "u64", MAX_PROCESSES),
    ("process_name", "char", MAX_PROCESSES * 16),
    ("vdie", "u32", 5),
    ("ndie", "u32", 5),
    ("ddie", "u32", 5),
    ("chip_type", "char", 32),
    ("chip_name", "char", 32),
    ("chip_version", "char", 32),
    ("npu_name", "char", 32),
    ("affinity", "char", 32),
    ("product_type", "char", 64),
    ("product", "char", 64),
    ("model", "char", 64),
    ("manufacturer", "char", 64),
    ("manufacture_date", "char", 32),
    ("serial", "char", 64),
    ("pci_text", "char", 16),
    ("firmware_version", "char", 64),
    ("mcu_version", "char", 64),
    ("vrd_version", "char", 64),
    # vNPU: the answers of dcmi_get_device_info 52/1, 52/2 and one 52/0 per slice
    ("vdev_total", "u8", 360),
    ("vdev_free", "u8", 224),
    ("vdev_count", "u32", 1),
    ("vdev_query", "u8", MAX_VDEVICES * 264),
)
EVENT: Fields = (
    ("number", "u64", 1),
    ("raised_ms", "u64", 1),
    ("code", "u32", 1),
    ("logic_id", "u32", 1),
    ("severity", "u8", 1),
    ("assertion", "u8", 1),
    ("node_type", "u8", 1),
    ("reserved", "u8", 5),
)
# The call log is a file of its own, since readers write it.
CALL_MAGIC = 0x4E505543414C4C53  # "NPUCALLS"
CALL_SLOTS = 1 << 16
CALL_HEADER: Fields = (
    ("magic", "u64", 1),
    ("count", "u64", 1),
    ("slots", "u32", 1),
    ("call_size", "u32", 1),
    ("reserved", "u64", 5),  # one record long
)
CALL: Fields = (
    ("number", "u64", 1),
    ("at_ns", "u64", 1),  # since 1970, from the kernel's coarse clock (a few ms)
    ("pid", "i32", 1),
    ("code", "i32", 1),
    ("function", "i32", 1),
    ("card_id", "i32", 1),
    ("device_id", "i32", 1),
    ("reserved", "u32", 3),
    ("program", "char", 16),
)
# One request over the socket next to the image, and its answer.
REQUEST: Fields = (
    ("function", "u32", 1),
    ("card_id", "i32", 1),
    ("device_id", "i32", 1),
    ("is_privileged", "u32", 1),
    ("size", "u32", 1),
)
REPLY: Fields = (("code", "i32", 1), ("size", "u32", 1))
MAX_MESSAGE = 65536


def _structure(name: str, fields: Fields) -> Any:
    made = [(f, _TYPES[kind] if n == 1 else _TYPES[kind] * n) for f, kind, n in fields]
    return type(name, (ctypes.Structure,), {"_fields_": made, "__module__": __name__})


def _block(name: str, content: Any) -> Any:
    fields = [("sequence", ctypes.c_uint32), ("reserved", ctypes.c_uint32), ("copy", content * 2)]
    return type(name, (ctypes.Structure,), {"_fields_": fields, "__module__": __name__})


Header = _structure("Header", HEADER)
Node = _structure("Node", NODE)
Rule = _structure("Rule", RULE)
Chip = _structure("Chip", CHIP)
Event = _structure("Event", EVENT)
CallHeader = _structure("CallHeader", CALL_HEADER)
Call = _structure("Call", CALL)
Request = _structure("Request", REQUEST)
Reply = _structure("Reply", REPLY)


class Script(ctypes.Structure):
    """Every rule that is in force."""

    _fields_ = (
        ("count", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("rules", Rule * MAX_RULES),
    )


NodeBlock = _block("NodeBlock", Node)
ScriptBlock = _block("ScriptBlock", Script)
ChipBlock = _block("ChipBlock", Chip)

NODE_AT = ctypes.sizeof(Header)
SCRIPT_AT = NODE_AT + ctypes.sizeof(NodeBlock)
EVENTS_AT = SCRIPT_AT + ctypes.sizeof(ScriptBlock)
CHIPS_AT = EVENTS_AT + EVENT_SLOTS * ctypes.sizeof(Event)
CALLS_SIZE = ctypes.sizeof(CallHeader) + CALL_SLOTS * ctypes.sizeof(Call)

CHIP_FIELDS = {name: (kind, count) for name, kind, count in CHIP}
NODE_FIELDS = {name: (kind, count) for name, kind, count in NODE}


def image_size(chips: int) -> int:
    """Bytes of an image with room for `chips` chips."""
    return CHIPS_AT + chips * ctypes.sizeof(ChipBlock)


def c_header() -> str:
    """The C view, with every offset asserted."""
    lines = [
        "/* Generated by `python -m fake_dcmi.layout`; do not edit. */",
        "#ifndef NPU_TESTBED_IMAGE_LAYOUT_H",
        "#define NPU_TESTBED_IMAGE_LAYOUT_H",
        "#include <stddef.h>",
        "#include <stdint.h>",
        "",
        f"#define IMAGE_MAGIC 0x{MAGIC:X}ULL",
        f"#define CALL_MAGIC 0x{CALL_MAGIC:X}ULL",
    ]
    lines += [
        f"#define {c_name} {value}u"
        for c_name, value in (
            ("IMAGE_VERSION", VERSION),
            ("IMAGE_MAX_CARDS", MAX_CARDS),
            ("IMAGE_MAX_CHIPS", MAX_CHIPS),
            ("IMAGE_MAX_CARD_ID", MAX_CARD_ID),
            ("IMAGE_MAX_DEVICES", MAX_DEVICES),
            ("IMAGE_MAX_IDS", MAX_IDS),
            ("IMAGE_MAX_ERROR_CODES", MAX_ERROR_CODES),
            ("IMAGE_MAX_PROCESSES", MAX_PROCESSES),
            ("IMAGE_MAX_VDEVICES", MAX_VDEVICES),
            ("IMAGE_MAX_SWITCH_FAULTS", MAX_SWITCH_FAULTS),
            ("IMAGE_UTILIZATION_TYPES", UTILIZATION_TYPES),
            ("IMAGE_EVENT_SLOTS", EVENT_SLOTS),
            ("IMAGE_MAX_RULES", MAX_RULES),
            ("IMAGE_FUNCTION_SLOTS", FUNCTION_SLOTS),
            ("IMAGE_NO_CHIP", NO_CHIP),
            ("GATE_CODE", GATE_CODE),
            ("GATE_SCRIPTED", GATE_SCRIPTED),
            ("IMAGE_NODE_AT", NODE_AT),
            ("IMAGE_SCRIPT_AT", SCRIPT_AT),
            ("IMAGE_EVENTS_AT", EVENTS_AT),
            ("IMAGE_CHIPS_AT", CHIPS_AT),
            ("CALL_SLOTS", CALL_SLOTS),
            ("CALLS_SIZE", CALLS_SIZE),
            ("MAX_MESSAGE", MAX_MESSAGE),
        )
    ]
    for name, fields, kind in (
        ("image_header", HEADER, Header),
        ("image_node", NODE, Node),
        ("image_rule", RULE, Rule),
        ("image_chip", CHIP, Chip),
        ("image_event", EVENT, Event),
        ("call_header", CALL_HEADER, CallHeader),
        ("call_record", CALL, Call),
        ("change_request", REQUEST, Request),
        ("change_reply", REPLY, Reply),
    ):
        lines += ["", f"struct {name} {{"]
        lines += [
            f"    {_C_NAMES[t]} {field}{'' if n == 1 else f'[{n}]'};" for field, t, n in fields
        ]
        lines.append("};")
        lines += [
            f"_Static_assert(offsetof(struct {name}, {field}) == {getattr(kind, field).offset},"
            f' "{field}");'
            for field, _, _ in fields
        ]
        lines.append(f'_Static_assert(sizeof(struct {name}) == {ctypes.sizeof(kind)}, "{name}");')
    lines += [
        "",
        "struct image_script {",
        "    uint32_t count;",
        "    uint32_t reserved;",
        "    struct image_rule rules[IMAGE_MAX_RULES];",
        "};",
        f'_Static_assert(sizeof(struct image_script) == {ctypes.sizeof(Script)}, "image_script");',
    ]
    for name, kind in (("node", NodeBlock), ("script", ScriptBlock), ("chip", ChipBlock)):
        lines += [
            "",
            f"struct {name}_block {{",
            "    uint32_t sequence;",
            "    uint32_t reserved;",
            f"    struct image_{name} copy[2];",
            "};",
            f"_Static_assert(sizeof(struct {name}_block) == {ctypes.sizeof(kind)},"
            f' "{name}_block");',
        ]
    return "\n".join([*lines, "", "#endif", ""])


if len(api.functions()) > FUNCTION_SLOTS:
    raise AssertionError("more functions than the image has gates for")

if __name__ == "__main__":
    print(c_header(), end="")
