"""The checkpoint file: published files verify, what we write we can read, damage is seen."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_kubelet.checkpoint import Checkpoint, CorruptCheckpoint, Entry, decode, encode

# Files of real nodes and computed ones, each with the checksum a kubelet gave it.
V1_RESPONSE = "CikKC3NyaW92X25ldF9BEhogMDAwMDowMzowMi4zIDAwMDA6MDM6MDIuMA=="
VECTORS = {
    3952659280: (
        '{"PodDeviceEntries":null,"RegisteredDevices":'
        '{"nvidia.com/gpu":["GPU-0650a168-e770-3ea8-8ac3-8a1d419763e0"]}}'
    ),
    229855270: (
        '{"PodDeviceEntries":[{"PodUID":"970a395d-bb3b-11e8-89df-408d5c537d23","ContainerName":'
        '"appcntr1","ResourceName":"intel.com/sriov_net_A","DeviceIDs":["0000:03:02.3",'
        f'"0000:03:02.0"],"AllocResp":"{V1_RESPONSE}"}}],"RegisteredDevices":'
        '{"intel.com/sriov_net_A":["0000:03:02.1","0000:03:02.2","0000:03:02.3","0000:03:02.0"],'
        '"intel.com/sriov_net_B":["0000:03:06.3","0000:03:06.0","0000:03:06.1","0000:03:06.2"]}}'
    ),
    3467439661: '{"PodDeviceEntries":null,"RegisteredDevices":{}}',
    784508710: '{"PodDeviceEntries":null,"RegisteredDevices":{"huawei.com/Ascend910":[]}}',
    3471185507: (
        '{"PodDeviceEntries":[{"PodUID":"11111111-2222-3333-4444-555555555555","ContainerName":'
        '"train","ResourceName":"huawei.com/Ascend910","DeviceIDs":{"-1":["Ascend910-0",'
        '"Ascend910-1"]},"AllocResp":"Ch0KFkFTQ0VORF9WSVNJQkxFX0RFVklDRVMSAzAsMQ=="}],'
        '"RegisteredDevices":{"huawei.com/Ascend910":["Ascend910-0","Ascend910-1","Ascend910-2"]}}'
    ),
}


@pytest.mark.parametrize("checksum", VECTORS)
def test_published_files_verify(checksum: int) -> None:
    raw = f'{{"Data":{VECTORS[checksum]},"Checksum":{checksum}}}'.encode()
    content = decode(raw, ("v1", "v2"))
    is_v1 = checksum == 229855270
    assert encode(content, "v1" if is_v1 else "v2") == raw
    wrong = raw.replace(str(checksum).encode(), str(checksum ^ 1).encode())
    with pytest.raises(CorruptCheckpoint, match="corrupted"):
        decode(wrong, ("v1", "v2"))


def test_old_files_are_read_only_where_that_is_known() -> None:
    raw = f'{{"Data":{VECTORS[229855270]},"Checksum":229855270}}'.encode()
    with pytest.raises(CorruptCheckpoint, match="cannot unmarshal array"):
        decode(raw)
    (entry,) = decode(raw, ("v1", "v2")).entries
    assert entry.ids == {0: ("0000:03:02.3", "0000:03:02.0")}


names = st.text(st.characters(codec="utf-8", exclude_characters='"\\'), min_size=1, max_size=8)
ids = st.lists(names, max_size=4).map(tuple)
entries = st.builds(
    Entry,
    pod_uid=names,
    container=names,
    resource=names,
    ids=st.dictionaries(st.integers(-1, 12), ids, min_size=1, max_size=3),
    response=st.binary(max_size=20),
)
contents = st.builds(
    Checkpoint,
    entries=st.lists(entries, max_size=3).map(tuple),
    registered=st.dictionaries(names, ids, max_size=3),
)


@given(contents)
def test_what_is_written_is_read_back(content: Checkpoint) -> None:
    raw = encode(content)
    assert decode(raw) == content
    assert not {b"<", b">", b"&", b"\n"} & {raw[n : n + 1] for n in range(len(raw))}
    json.loads(raw)


@given(contents, st.data())
def test_damage_never_passes_as_another_state(content: Checkpoint, data: st.DataObject) -> None:
    raw = encode(content)
    at = data.draw(st.integers(0, len(raw) - 1))
    damaged = raw[:at] + bytes([raw[at] ^ data.draw(st.integers(1, 255))]) + raw[at + 1 :]
    try:
        seen = decode(damaged)
    except CorruptCheckpoint:
        return
    assert seen == content  # a change that means nothing, as in a number's spelling


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b"null", b'{"Data":{},"Checksum":1}', b'{"Data":null,"Checksum":0}']
)
def test_other_files_are_corrupt(raw: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        decode(raw)
