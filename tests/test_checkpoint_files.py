"""What is saved comes back bit for bit, or not at all and with a sentence about it."""

import hashlib
import json
import math
import os
import shutil
import struct
from collections import OrderedDict
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment import checkpointing, codec, manifest
from rl_training.experiment.checkpointing import (
    CheckpointStore,
    load_checkpoint,
    load_tree,
    resolve_checkpoint,
    save_tree,
)

FILES = ("state.json", "tensors.safetensors", "manifest.json")


class Color(IntEnum):
    RED = 1


def type_name(value: object) -> str:
    """A test id; some values are too long, or too large, to be one."""
    return type(value).__name__


def bits(value: Any) -> Any:
    """A form of a tree in which equal means the same types, dtypes, shapes and bits (NaN included)."""
    if isinstance(value, dict):
        return {key: bits(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [bits(child) for child in value]
    if isinstance(value, torch.Tensor):
        raw = value.detach().contiguous().flatten().view(torch.uint8) if value.numel() else value.new_empty(0)
        return ("tensor", value.dtype, tuple(value.shape), raw.tolist())
    if isinstance(value, np.ndarray | np.generic):
        return (type(value).__name__, value.dtype, value.shape, value.tobytes())
    if isinstance(value, float):
        return ("float", struct.pack(">d", value))
    return (type(value).__name__, value)


def round_trip(tree: dict[str, Any], directory: Path) -> dict[str, Any]:
    save_tree(directory, tree)
    return load_tree(directory)


def small_tree(value: float = 1.0) -> dict[str, Any]:
    return {"weights": torch.full((2, 3), value), "step": 7}


def file_digest(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def reseal(directory: Path, **changes: Any) -> None:
    """Give a tampered checkpoint the right digests, as someone with bad intentions would."""
    header = json.loads((directory / "manifest.json").read_text())
    del header["sha256"]
    header["files"] = {name: file_digest(directory / name) for name in FILES[:2]}
    (directory / "manifest.json").write_bytes(manifest.sealed({**header, **changes}))


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        -1,
        2**63,
        -(2**127) - 5,
        10**5000,
        0.1,
        -0.0,
        5e-324,
        math.inf,
        -math.inf,
        math.nan,
        struct.unpack(">d", bytes.fromhex("fff8000000000123"))[0],
        "",
        "naïve \n \x00 🙂 \ud800",
        [],
        {},
        [[], [{}], None],
        {"": {"": 1}},
        {"$": 1},
        {"$": ["tensor"]},
        {"$": {"$": ["int", "0x1"]}, "other": 2},
        {"~": 1, "/": 2, "~1": 3, "a/b": {"~0": 4}},
    ],
    ids=type_name,
)
def test_plain_values_come_back_exactly(value: Any, tmp_path: Path) -> None:
    assert bits(round_trip({"value": value}, tmp_path / "c")) == bits({"value": value})


@pytest.mark.parametrize("dtype", sorted(codec.SCALAR_DTYPES))
def test_numpy_scalars_keep_their_type(dtype: str, tmp_path: Path) -> None:
    value = np.dtype(dtype).type(1)
    assert bits(round_trip({"value": value}, tmp_path / "c")) == bits({"value": value})


@pytest.mark.parametrize("dtype", sorted(codec.SCALAR_DTYPES - {"complex128"}))
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 3)])
def test_arrays_and_tensors_keep_kind_dtype_and_shape(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    array = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    tree = {"array": array, "tensor": torch.from_numpy(array.copy())}
    assert bits(round_trip(tree, tmp_path / "c")) == bits(tree)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_torch_has_dtypes_of_its_own(dtype: torch.dtype, tmp_path: Path) -> None:
    tree = {"tensor": torch.tensor([0.5, -2.0]).to(dtype)}
    assert bits(round_trip(tree, tmp_path / "c")) == bits(tree)


def test_awkward_memory_does_not_matter(tmp_path: Path) -> None:
    base, array = torch.arange(12.0).reshape(3, 4), np.arange(12).reshape(3, 4)
    frozen = array.copy()
    frozen.flags.writeable = False
    tree = {
        "base": base,
        "same": base,
        "transposed": base.T,
        "part": base[1:, ::2],
        "expanded": torch.ones(1).expand(5),
        "parameter": torch.nn.Parameter(base.clone()),
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "shared": torch.from_numpy(array),
        "array": array,
        "reversed": array[::-1, ::-2],
        "fortran": np.asfortranarray(array),
        "read_only": frozen,
    }
    loaded = round_trip(tree, tmp_path / "c")
    tree["conjugate"] = torch.tensor([1 - 2j])
    assert bits(loaded) == bits(tree)
    assert not loaded["parameter"].requires_grad
    loaded["base"][0, 0] = loaded["array"][0, 0] = 99
    assert loaded["same"][0, 0] == 0
    assert loaded["shared"][0, 0] == 0


def test_documented_exceptions_to_exactness(tmp_path: Path) -> None:
    tree = {"betas": (0.9, 0.999), "ordered": OrderedDict(a=1), "big_endian": np.array([1, 2], ">i4")}
    loaded = round_trip(tree, tmp_path / "c")
    assert loaded["betas"] == [0.9, 0.999]
    assert type(loaded["ordered"]) is dict
    assert loaded["big_endian"].tolist() == [1, 2]


def test_key_order_is_kept(tmp_path: Path) -> None:
    assert list(round_trip({"b": 1, "a": 2, "c": 3}, tmp_path / "c")) == ["b", "a", "c"]


def test_generators_continue_where_they_were(tmp_path: Path) -> None:
    numpy_rng, torch_rng = np.random.default_rng(1), torch.Generator().manual_seed(1)
    tree = {"numpy": numpy_rng.bit_generator.state, "torch": torch_rng.get_state()}
    loaded = round_trip(tree, tmp_path / "c")
    expected = numpy_rng.random(3), torch.rand(3, generator=torch_rng)
    numpy_rng.bit_generator.state = loaded["numpy"]
    torch_rng.set_state(loaded["torch"])
    assert np.array_equal(numpy_rng.random(3), expected[0])
    assert torch.equal(torch.rand(3, generator=torch_rng), expected[1])


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | hnp.arrays(
        st.sampled_from(["bool", "uint8", "int64", "float32", "float64"]), hnp.array_shapes(min_dims=0, min_side=0)
    )
    | hnp.arrays(st.sampled_from(["int16", "float32"]), (2,)).map(torch.from_numpy)
    | st.floats(width=32).map(np.float32)
)
TREES = st.dictionaries(
    st.text(max_size=4),
    st.recursive(LEAVES, lambda nodes: st.lists(nodes, max_size=3) | st.dictionaries(st.text(max_size=3), nodes)),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=TREES)
def test_any_tree_comes_back_exactly(tree: dict[str, Any], tmp_path: Path) -> None:
    assert bits(round_trip(tree, tmp_path / "c")) == bits(tree)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({1: 2}, "key 1 is not a str"),
        (Color.RED, "Color"),
        ({1, 2}, "set"),
        (b"bytes", "bytes"),
        (np.array(["text"]), "only numbers"),
        (np.array([object()]), "only numbers"),
        (np.datetime64("2020-01-01"), "datetime64"),
        (torch.zeros(2).to_sparse(), "make it dense"),
        (torch.zeros(2, dtype=torch.complex128), "complex128"),
    ],
)
def test_what_cannot_come_back_is_refused(value: Any, reason: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"/outer/0.*{reason}"):
        save_tree(tmp_path / "c", {"outer": [value]})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", FILES)
def test_every_flipped_bit_is_detected(name: str, tmp_path: Path) -> None:
    save_tree(tmp_path / "c", small_tree())
    content = (tmp_path / "c" / name).read_bytes()
    for position in range(len(content)):
        flip(tmp_path / "c" / name, position)
        with pytest.raises(CheckpointError, match=name):
            load_tree(tmp_path / "c")
        (tmp_path / "c" / name).write_bytes(content)
    assert bits(load_tree(tmp_path / "c")) == bits(small_tree())


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("content", [None, b"", b"half", b"PK\x03\x04" * 100, b"[" * 100_000], ids=type_name)
def test_missing_truncated_and_foreign_files_are_named(name: str, content: bytes | None, tmp_path: Path) -> None:
    save_tree(tmp_path / "c", small_tree())
    path = tmp_path / "c" / name
    whole = path.read_bytes()
    path.unlink()
    if content is not None:
        path.write_bytes(whole[: len(whole) // 2] if content == b"half" else content)
    with pytest.raises(CheckpointError, match=name) as raised:
        load_tree(tmp_path / "c")
    assert "\n" not in str(raised.value)


def test_a_directory_that_is_no_checkpoint_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(CheckpointError, match=str(path)):
            load_tree(path)


@pytest.mark.parametrize(
    "state",
    [
        "[]",
        "1",
        "{}",  # does not use the tensor
        '{"other": {"$": ["tensor"]}}',
        '{"weights": {"$": ["tensor", "/../../etc/passwd"]}}',
        '{"weights": {"$": ["tensor"]}, "x": {"$": ["scalar", "O", "00"]}}',
        '{"weights": {"$": ["tensor"]}, "x": {"$": ["scalar", "float32", "00"]}}',
        '{"weights": {"$": ["tensor"]}, "x": {"$": ["float", "00"]}}',
        '{"weights": {"$": ["tensor"]}, "x": {"$": ["int", "zz"]}}',
        '{"weights": {"$": ["tensor"]}, "x": {"$": null}}',
        '{"weights": {"$": ["tensor"]}, "x": {"$": ["pickle", "gASVBQ=="]}}',
        '{"weights": {"$": ["tensor"]}, "x": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"weights": {"$": ["tensor"]}, "x": ' + '{"$": ["dict", ' * 20_000 + "1" + "]}" * 20_000 + "}",
    ],
    ids=type_name,
)
def test_hostile_state_with_right_digests_is_refused(state: str, tmp_path: Path) -> None:
    save_tree(tmp_path / "c", {"weights": torch.zeros(2)})
    (tmp_path / "c" / "state.json").write_text(state)
    reseal(tmp_path / "c")
    with pytest.raises(CheckpointError, match=r"state\.json"):
        load_tree(tmp_path / "c")


@pytest.mark.parametrize("content", [b"", b"\xff" * 64, b"\x02\0\0\0\0\0\0\0{}extra"])
def test_hostile_tensors_with_right_digests_are_refused(content: bytes, tmp_path: Path) -> None:
    save_tree(tmp_path / "c", {"weights": torch.zeros(2)})
    (tmp_path / "c" / "tensors.safetensors").write_bytes(content)
    reseal(tmp_path / "c")
    with pytest.raises(CheckpointError, match=r"tensors\.safetensors"):
        load_tree(tmp_path / "c")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": "another"}, "foreign"),
        ({"format_version": 3, "package_version": "9.9"}, r"version 3 by rl-training '9\.9'"),
        ({"files": {}}, "damaged"),
        ({"files": None}, "damaged"),
        ({"files": {"../secret": {}}}, "damaged"),
    ],
)
def test_foreign_manifests_are_refused(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    save_tree(tmp_path / "c", small_tree())
    reseal(tmp_path / "c", **changes)
    with pytest.raises(CheckpointError, match=rf"manifest\.json: .*{reason}"):
        load_tree(tmp_path / "c")


def test_nothing_is_parsed_before_the_digests_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_tree(tmp_path / "c", small_tree())
    flip(tmp_path / "c" / "state.json", 3)
    monkeypatch.setattr(checkpointing, "load_file", lambda path: pytest.fail("parsed the tensors"))
    with pytest.raises(CheckpointError, match="damaged"):
        load_tree(tmp_path / "c")


@pytest.mark.parametrize("surviving_renames", [0, 1])
def test_a_crash_while_replacing_leaves_the_old_one(
    surviving_renames: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two renames replace a directory: the old one goes aside, the new one takes its place."""
    save_tree(tmp_path / "c", small_tree(1.0))
    real_replace, renames = os.replace, iter(range(9))

    def failing_replace(source: Path, target: Path) -> None:
        if next(renames) >= surviving_renames:
            raise OSError("killed")
        real_replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing_replace)
        with pytest.raises(CheckpointError, match="killed"):
            save_tree(tmp_path / "c", small_tree(2.0))
    assert bits(load_tree(tmp_path / "c")) == bits(small_tree(1.0))
    assert resolve_checkpoint(tmp_path / "c") == tmp_path / "c"
    save_tree(tmp_path / "c", small_tree(3.0))
    assert bits(load_tree(tmp_path / "c")) == bits(small_tree(3.0))
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_a_crash_while_writing_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_tree(tmp_path / "c", small_tree(1.0))

    def full_disk(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(checkpointing, "save_file", full_disk)
    with pytest.raises(CheckpointError, match="no space"):
        save_tree(tmp_path / "c", small_tree(2.0))
    assert bits(load_tree(tmp_path / "c")) == bits(small_tree(1.0))


def test_other_peoples_files_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    with pytest.raises(CheckpointError, match=r"chapter\.tex"):
        save_tree(tmp_path / "thesis", small_tree())
    with pytest.raises(CheckpointError, match="is a file"):
        save_tree(tmp_path / "thesis" / "chapter.tex", small_tree())
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"


def test_files_are_as_readable_as_the_umask_says(tmp_path: Path) -> None:
    save_tree(tmp_path / "c", small_tree())
    assert len({(tmp_path / "c" / name).stat().st_mode for name in FILES}) == 1


def test_the_loaded_tree_does_not_depend_on_the_files(tmp_path: Path) -> None:
    loaded = round_trip(small_tree(5.0), tmp_path / "c")
    (tmp_path / "c" / "tensors.safetensors").write_bytes(b"")
    assert (loaded["weights"] == 5.0).all()


def test_a_store_keeps_the_last_the_best_and_no_more(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    for step in (10, 20, 30, 40, 100):
        store.save(step, {"step": step})
        if step == 20:
            store.mark_best(step)
    assert store.steps() == [20, 40, 100]
    assert (store.latest(), store.best()) == (store.root / "step-100", store.root / "step-20")
    assert [store.load(which)["step"] for which in ("latest", "best", 40, "40", "step-40")] == [100, 20, 40, 40, 40]


def test_an_empty_store_has_nothing(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    assert (store.latest(), store.best(), store.steps()) == (None, None, [])
    with pytest.raises(CheckpointError, match="no such"):
        store.load()
    with pytest.raises(ConfigError, match="keep"):
        CheckpointStore(tmp_path, keep=0)


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.save(10, {"value": 1})
    store.save(10, {"value": 2})
    store.mark_best(10)
    assert (store.steps(), store.load()["value"]) == ([10], 2)


def test_resuming_from_an_older_step_does_not_prune_the_new_branch(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    for step in (10, 20, 30):
        store.save(step, {"step": step})
    for step in (15, 17, 19):
        store.save(step, {"step": step})
    assert store.load()["step"] == 19
    assert store.steps() == [17, 19, 20, 30]


def test_a_run_directory_can_be_moved(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "run")
    store.save(10, {"value": 1})
    store.mark_best(10)
    shutil.move(tmp_path / "run", tmp_path / "elsewhere")
    root = tmp_path / "elsewhere" / "checkpoints"
    assert (os.readlink(root / "latest"), os.readlink(root / "best")) == ("step-10", "step-10")
    assert CheckpointStore(tmp_path / "elsewhere").load("best") == {"value": 1}


@pytest.mark.parametrize("follow_links", [False, True])
def test_a_copy_without_links_still_has_a_latest(follow_links: bool, tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "run")
    store.save(9, {"value": 9})
    store.save(10, {"value": 10})
    ignore = None if follow_links else shutil.ignore_patterns("latest")
    shutil.copytree(tmp_path / "run", tmp_path / "copy", ignore=ignore)
    copy = CheckpointStore(tmp_path / "copy")
    assert copy.load() == {"value": 10}
    copy.save(11, {"value": 11})
    assert copy.load() == {"value": 11}


def test_leftovers_of_killed_processes_are_removed(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.save(10, {"value": 1})
    (store.root / ".tmp-step-20-dead").mkdir()
    (store.root / ".tmp-step-20-dead" / "state.json").write_text("{")
    (store.root / ".tmp-latest-dead").symlink_to("step-20")
    shutil.copytree(store.root / "step-10", store.root / ".old-step-10")
    store.save(30, {"value": 3})
    assert sorted(path.name for path in store.root.iterdir()) == ["latest", "step-10", "step-30"]


def test_a_step_killed_between_the_renames_is_found_aside(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    store.save(10, {"value": 1})
    os.replace(store.root / "step-10", store.root / ".old-step-10")
    assert (store.steps(), store.load(), store.load(10)) == ([10], {"value": 1}, {"value": 1})
    store.save(20, {"value": 2})
    assert sorted(path.name for path in store.root.iterdir()) == ["latest", "step-20"]


def test_a_damaged_latest_names_an_intact_older_one(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=4)
    for step in (10, 20, 30, 40):
        store.save(step, small_tree(step))
    flip(store.root / "step-40" / "tensors.safetensors", -1)
    (store.root / "step-30" / "manifest.json").unlink()
    for path in (tmp_path, store.root, store.root / "latest", store.root / "step-40"):
        with pytest.raises(CheckpointError, match=r"step-40/tensors.*step-20 is intact"):
            load_checkpoint(path)
    for step in (10, 20):
        flip(store.root / f"step-{step}" / "state.json", 0)
    with pytest.raises(CheckpointError, match=r"step-40/tensors[^;]*;[^;]*$"):
        store.load()


def test_a_checkpoint_is_found_from_anywhere(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "run")
    store.save(10, {})
    store.mark_best(10)
    store.save(20, {})
    latest, best = store.root / "step-20", store.root / "step-10"
    assert [resolve_checkpoint(path) for path in (tmp_path / "run", store.root, latest)] == [latest] * 3
    assert resolve_checkpoint(tmp_path / "run", "best") == best
    assert resolve_checkpoint(store.root / "best") == best
    assert resolve_checkpoint(store.root, "10") == best
    save_tree(tmp_path / "model", {})
    assert resolve_checkpoint(tmp_path / "model") == tmp_path / "model"


def test_a_checkpoint_that_is_not_there_is_explained(tmp_path: Path) -> None:
    CheckpointStore(tmp_path / "run").save(10, {})
    with pytest.raises(CheckpointError, match=r"no checkpoint '15'; there are the steps 10"):
        resolve_checkpoint(tmp_path / "run", "15")
    with pytest.raises(CheckpointError, match=r"no checkpoint 'best'"):
        resolve_checkpoint(tmp_path / "run", "best")
    with pytest.raises(CheckpointError, match="neither a checkpoint nor a run"):
        resolve_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="no such"):
        resolve_checkpoint(tmp_path / "absent")
