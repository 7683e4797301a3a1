"""The runtime edit against what was measured on the vendor's program, row by row."""

import copy
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.runtime.edit import EditError, Host, HostNode, edit, parse_devices

NODE = HostNode(kind="c", major=1, minor=3, mode=0o660)
DEVICES = {f"/dev/davinci{n}" for n in range(8)} | {
    "/dev/vdavinci0",
    "/dev/davinci_manager",
    "/dev/devmm_svm",
    "/dev/hisi_hdc",
    "/dev/dvpp_cmdlist",
}


def host(*, without: str = "", has_manager: bool = True, kind: str = "c", paths: str = "") -> Host:
    node = HostNode(kind=kind, major=1, minor=3, mode=0o660)
    return Host(
        device=lambda path: node if path in DEVICES and path != without else None,
        exists=lambda path: path in paths.split(),
        source=lambda path: f"/node{path}",
        has_manager=has_manager,
    )


def spec(*env: str) -> dict[str, Any]:
    return {
        "process": {"env": ["PATH=/bin", *env]},
        "mounts": [],
        "linux": {"devices": [], "resources": {"devices": [{"allow": False}]}},
    }


def devices(result: dict[str, Any]) -> list[str]:
    return [device["path"].removeprefix("/dev/") for device in result["linux"]["devices"]]


SHARED = ["dvpp_cmdlist", "davinci_manager", "devmm_svm", "hisi_hdc"]


@pytest.mark.parametrize(
    ("env", "cards"),
    [
        ((), []),
        (("ASCEND_VISIBLE_DEVICES=",), []),
        (("ASCEND_VISIBLE_DEVICES=void",), []),
        (("ASCEND_VISIBLE_DEVICES=0",), [0]),
        (("ASCEND_VISIBLE_DEVICES=3,1,1-2",), [3, 1, 2]),
        (("ASCEND_VISIBLE_DEVICES=0,1,0",), [0, 1, 0]),
        (("ASCEND_VISIBLE_DEVICES=Ascend910-1,Ascend910-0",), [1, 0]),
        (("ASCEND_VISIBLE_DEVICES=npu-2",), [2]),
        (("ASCEND_VISIBLE_DEVICES= 1 , 2 ",), [1, 2]),
        (("ASCEND_VISIBLE_DEVICES=0", "ASCEND_VISIBLE_DEVICES=1"), [1]),
        (("ASCEND_VISIBLE_DEVICES=0", "NOEQ"), []),
        (("NOEQ", "ASCEND_VISIBLE_DEVICES=0"), [0]),
    ],
)
def test_devices_in_the_order_given(env: tuple[str, ...], cards: list[int]) -> None:
    result = edit(spec(*env), host())
    named = [f"davinci{card}" for card in cards]
    assert devices(result) == ([*named, *SHARED] if cards else [])
    rules = result["linux"]["resources"]["devices"]
    assert rules[0] == {"allow": False}
    assert [rule["access"] for rule in rules[1:]] == ["rwm"] * len(devices(result))
    assert result["process"]["env"][-1] == "ASCEND_DOCKER_RUNTIME=True"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("0,Ascend910-1", "failed to parse ascend device : invalid device format: 0"),
        ("Ascend910B-0", "invalid device format: Ascend910B-0"),
        ("1-2-3", "failed to parse device : invalid device range: 1-2-3"),
        ("0-129", "invalid right boarder range parameter: 129"),
        ("4-2", "left boarder (4) should not be larger than the right one(2)"),
        ("all", "invalid single device parameter: all"),
        ("-1", "invalid left boarder range parameter: "),
        ("99", "failed to get /dev/davinci99 info : no such file or directory"),
    ],
)
def test_bad_values_are_refused_in_the_vendors_words(value: str, text: str) -> None:
    before = spec(f"ASCEND_VISIBLE_DEVICES={value}")
    kept = copy.deepcopy(before)
    with pytest.raises(EditError) as error:
        edit(before, host())
    assert text in str(error.value)
    assert before == kept


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ("/dev/devmm_svm", "failed to get /dev/devmm_svm info"),
        ("/dev/davinci_manager", "add davinci_manager to spec error"),
        ("/dev/hisi_hdc", "failed to add common manage device"),
    ],
)
def test_missing_shared_node_is_fatal(missing: str, text: str) -> None:
    with pytest.raises(EditError, match=text):
        edit(spec("ASCEND_VISIBLE_DEVICES=0"), host(without=missing))


def test_missing_dvpp_is_only_left_out() -> None:
    result = edit(spec("ASCEND_VISIBLE_DEVICES=0"), host(without="/dev/dvpp_cmdlist"))
    assert devices(result) == ["davinci0", "davinci_manager", "devmm_svm", "hisi_hdc"]


def test_virtual_option_takes_the_host_vdavinci() -> None:
    result = edit(spec("ASCEND_VISIBLE_DEVICES=0", "ASCEND_RUNTIME_OPTIONS=VIRTUAL"), host())
    assert devices(result)[0] == "davinci0"
    with pytest.raises(EditError, match="vdavinci1"):
        edit(spec("ASCEND_VISIBLE_DEVICES=1", "ASCEND_RUNTIME_OPTIONS=VIRTUAL"), host())


def test_without_the_driver_library_only_card_containers_fail() -> None:
    assert edit(spec(), host(has_manager=False))
    with pytest.raises(EditError, match="failed to find a valid manager"):
        edit(spec("ASCEND_VISIBLE_DEVICES=0"), host(has_manager=False))


def test_damaged_configs() -> None:
    with pytest.raises(EditError, match="empty process info"):
        edit({}, host())
    bare = {"process": {}, "linux": {}}
    assert edit(bare, host()) == bare
    no_resources = spec("ASCEND_VISIBLE_DEVICES=0")
    del no_resources["linux"]["resources"]
    with pytest.raises(EditError, match="nil pointer dereference"):
        edit(no_resources, host())


def test_a_plain_file_is_no_device_unless_stand_ins_are_allowed() -> None:
    with pytest.raises(EditError, match="not a device node"):
        edit(spec("ASCEND_VISIBLE_DEVICES=0"), host(kind="file"))


def test_driver_directories_are_mounted_and_put_first_on_the_library_path() -> None:
    driver = "/usr/local/Ascend/driver/lib64"
    paths = f"{driver} {driver}/driver"
    result = edit(spec("ASCEND_VISIBLE_DEVICES=0", "LD_LIBRARY_PATH=/a"), host(paths=paths))
    assert f"LD_LIBRARY_PATH={driver}/driver:/a" in result["process"]["env"]
    (mount,) = result["mounts"]
    assert (mount["destination"], mount["source"]) == (driver, f"/node{driver}")
    assert "ro" in mount["options"]


@given(st.text(alphabet="0123456789-, Ascendnpu", max_size=20))
def test_any_value_parses_or_is_refused(value: str) -> None:
    try:
        ids = parse_devices(value)
    except EditError:
        return
    assert all(number >= 0 for number in ids)
    assert all(a != b for a, b in pairwise(ids))
