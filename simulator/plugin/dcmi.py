"""libdcmi.so through ctypes: each call answers (return code, value).

Struct layouts are those clients of the vendor's library use
(Ascend/mind-cluster:component/ascend-common/devmanager/dcmi/dcmi_interface_api.h). A symbol that
the library lacks answers -99998, as the vendor's wrapper does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MISSING_SYMBOL = -99998
MAX_CARDS = 64
MAX_ERROR_CODES = 128
VERSION_SIZE = 33


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipInfo:
    """Identity of one chip."""

    chip_type: str
    chip_name: str
    chip_version: str
    aicore_count: int
    npu_name: str


class _ChipInfoV2(ctypes.Structure):
    _fields_ = (
        ("chip_type", ctypes.c_char * 32),
        ("chip_name", ctypes.c_char * 32),
        ("chip_ver", ctypes.c_char * 32),
        ("aicore_cnt", ctypes.c_uint),
        ("npu_name", ctypes.c_char * 32),
    )


class _Filter(ctypes.Structure):
    _fields_ = (
        ("filter_flag", ctypes.c_ulonglong),
        ("event_id", ctypes.c_uint),
        ("severity", ctypes.c_ubyte),
        ("node_type", ctypes.c_ubyte),
        ("resv", ctypes.c_ubyte * 32),
    )


class _FaultEvent(ctypes.Structure):
    """`struct dcmi_event` with a DMS fault in it: the head of the 360 bytes that are read here."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("padding", ctypes.c_int),
        ("event_id", ctypes.c_uint),
        ("deviceid", ctypes.c_ushort),
        ("nodes", ctypes.c_ubyte * 4),
        ("severity", ctypes.c_ubyte),
        ("assertion", ctypes.c_ubyte),
        ("rest", ctypes.c_ubyte * 340),
    )


_Callback = ctypes.CFUNCTYPE(None, ctypes.POINTER(_FaultEvent))
EVERY_DEVICE = -1


# The library keeps a callback for the life of the process, so it must never be freed.
_CALLBACKS: list[Any] = []


class LibraryDcmi:
    """The calls of a loaded libdcmi.so."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))

    def init(self) -> int:
        return self._call("dcmi_init")

    def card_list(self) -> tuple[int, tuple[int, ...]]:
        count, cards = ctypes.c_int(), (ctypes.c_int * MAX_CARDS)()
        ret = self._call("dcmi_get_card_list", ctypes.byref(count), cards, MAX_CARDS)
        return ret, () if ret else tuple(cards[: count.value])

    def device_num_in_card(self, card: int) -> tuple[int, int]:
        return self._int("dcmi_get_device_num_in_card", card)

    def device_logic_id(self, card: int, device: int) -> tuple[int, int]:
        value = ctypes.c_int()
        ret = self._call("dcmi_get_device_logic_id", ctypes.byref(value), card, device)
        return ret, value.value

    def phy_id(self, logic: int) -> tuple[int, int]:
        return self._int("dcmi_get_device_phyid_from_logicid", logic)

    def chip_info(self, card: int, device: int) -> tuple[int, ChipInfo]:
        raw = _ChipInfoV2()
        ret = self._call("dcmi_get_device_chip_info_v2", card, device, ctypes.byref(raw))
        return ret, ChipInfo(
            chip_type=raw.chip_type.decode(),
            chip_name=raw.chip_name.decode(),
            chip_version=raw.chip_ver.decode(),
            aicore_count=raw.aicore_cnt,
            npu_name=raw.npu_name.decode(),
        )

    def health(self, card: int, device: int) -> tuple[int, int]:
        value = ctypes.c_uint()
        ret = self._call("dcmi_get_device_health", card, device, ctypes.byref(value))
        return ret, value.value

    def error_codes(self, card: int, device: int) -> tuple[int, tuple[int, ...]]:
        count, codes = ctypes.c_int(), (ctypes.c_uint * MAX_ERROR_CODES)()
        ret = self._call(
            "dcmi_get_device_errorcode_v2",
            card,
            device,
            ctypes.byref(count),
            codes,
            MAX_ERROR_CODES,
        )
        return ret, () if ret else tuple(code for code in codes[: count.value] if code)

    def dcmi_version(self) -> tuple[int, str]:
        return self._text("dcmi_get_dcmi_version")

    def driver_version(self) -> tuple[int, str]:
        return self._text("dcmi_get_driver_version")

    def subscribe(self, on_event: Callable[[int, int, int, int], None]) -> int:
        """Every fault event of every device: (code, logic id, severity, assertion).

        Runs on the library's thread. Returns the library's code.
        """

        def relay(event: Any) -> None:
            raw = event.contents
            on_event(raw.event_id, raw.deviceid, raw.severity, raw.assertion)

        callback = _Callback(relay)
        _CALLBACKS.append(callback)
        function = getattr(self._library, "dcmi_subscribe_fault_event", None)
        if function is None:
            return MISSING_SYMBOL
        function.argtypes = (ctypes.c_int, ctypes.c_int, _Filter, _Callback)
        function.restype = ctypes.c_int
        return int(function(EVERY_DEVICE, EVERY_DEVICE, _Filter(), callback))

    def _call(self, name: str, *arguments: Any) -> int:
        function = getattr(self._library, name, None)
        return MISSING_SYMBOL if function is None else int(function(*arguments))

    def _int(self, name: str, key: int) -> tuple[int, int]:
        value = ctypes.c_int()
        ret = self._call(name, key, ctypes.byref(value))
        return ret, value.value

    def _text(self, name: str) -> tuple[int, str]:
        buffer = ctypes.create_string_buffer(VERSION_SIZE)
        ret = self._call(name, buffer, VERSION_SIZE)
        return ret, buffer.value.decode(errors="replace")
