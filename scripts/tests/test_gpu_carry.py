"""What is carried to another machine arrives whole, or is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import gpu_carry
from gpu_carry import CarriedError

RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """An installation of three files, one of them of no use."""
    folder = tmp_path / "site"
    for name, content in (
        ("engine/core.py", "x = 1\n" * 5000),
        ("engine/tests/test_core.py", "no use\n"),
        ("engine/__pycache__/core.pyc", "no use\n"),
        ("engine-1.dist-info/METADATA", "Name: engine\n"),
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def packed(tmp_path, site, *, python=RUNNING, part_bytes=200, name="out"):
    archive = tmp_path / f"{name}.tar.xz"
    gpu_carry.compress(site, archive, skipped=["engine/tests"])
    return gpu_carry.split(archive, tmp_path / name, part_bytes=part_bytes, about={"python": python})


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_parts_in_any_order_give_what_was_packed(tmp_path, site):
    parts = packed(tmp_path, site)
    assert len(parts) > 1
    assert all((part / "data").stat().st_size <= 200 for part in parts)
    gpu_carry.unpack(list(reversed(parts)), tmp_path / "there")
    assert files_in(tmp_path / "there") == ["engine-1.dist-info/METADATA", "engine/core.py"]
    assert (tmp_path / "there/engine/core.py").read_text() == (site / "engine/core.py").read_text()


def test_one_folder_may_hold_all_parts(tmp_path, site):
    packed(tmp_path, site)
    gpu_carry.unpack([tmp_path / "out"], tmp_path / "there")
    assert len(files_in(tmp_path / "there")) == 2


def refused(folders, tmp_path) -> str:
    with pytest.raises(CarriedError) as error:
        gpu_carry.unpack(folders, tmp_path / "there")
    assert not (tmp_path / "there").exists()
    return str(error.value)


def test_a_missing_part_is_named(tmp_path, site):
    parts = packed(tmp_path, site)
    assert refused([*parts[:1], *parts[2:]], tmp_path) == f"part [1] of {len(parts)} is missing"


def test_a_damaged_part_is_refused(tmp_path, site):
    parts = packed(tmp_path, site)
    data = bytearray((parts[0] / "data").read_bytes())
    data[10] ^= 1
    (parts[0] / "data").write_bytes(data)
    assert "damaged" in refused(parts, tmp_path)


def test_parts_of_two_packs_are_refused(tmp_path, site):
    parts = packed(tmp_path, site)
    (site / "engine/core.py").write_text("x = 2\n" * 5000)
    others = packed(tmp_path, site, name="other")
    assert "belong to 2 packs" in refused([parts[0], *others[1:]], tmp_path)


def test_another_python_is_refused(tmp_path, site):
    parts = packed(tmp_path, site, python="2.7")
    assert refused(parts, tmp_path) == f"it was packed for Python 2.7, this is {RUNNING}"


def test_a_folder_without_parts_is_refused(tmp_path):
    assert "holds no part" in refused([tmp_path], tmp_path)


def test_a_new_pack_replaces_an_older_one_of_more_parts(tmp_path, site):
    packed(tmp_path, site)
    parts = packed(tmp_path, site, part_bytes=10**6)
    assert [json.loads((part / "manifest.json").read_text())["parts"] for part in parts] == [1]
    gpu_carry.unpack([tmp_path / "out"], tmp_path / "there")


LOCK = {
    "package": [
        {
            "name": "workspace",
            "source": {"virtual": "."},
            "dev-dependencies": {"test": [{"name": "tester"}], "lint": [{"name": "linter"}]},
        },
        {
            "name": "ours",
            "source": {"editable": "packages/ours"},
            "dependencies": [{"name": "torch"}, {"name": "config"}],
            "optional-dependencies": {"fast": [{"name": "engine"}]},
        },
        *(
            {
                "name": name,
                "source": {"registry": "a registry"},
                "dependencies": [{"name": n} for n in needs],
            }
            for name, needs in {
                "torch": ["driver", "typing"],
                "driver": [],
                "typing": [],
                "config": ["typing"],
                "engine": ["numbers"],
                "numbers": [],
                "tester": [],
                "linter": [],
            }.items()
        ),
    ]
}


def test_everything_is_carried_but_torch_and_what_only_torch_brings():
    found = gpu_carry.needed(LOCK, without=["torch"])
    assert found == {"workspace", "ours", "config", "typing", "engine", "numbers", "tester"}


def test_what_is_there_already_is_left_out_with_what_only_it_needs():
    assert gpu_carry.needed(LOCK, without=["torch", "engine"]) == {
        *("workspace", "ours", "config", "typing", "tester"),
    }


def test_the_workspace_s_own_lock_gives_the_engines_without_torch():
    import tomllib

    lock = tomllib.loads((Path(gpu_carry.ROOT) / "uv.lock").read_text())
    found = gpu_carry.needed(lock, without=("torch", *gpu_carry.UNUSED))
    assert {
        "mujoco",
        "mujoco-core",
        "mujoco-warp",
        "warp-lang",
        "rsl-rl-lib",
        "tensordict",
        "pytest",
    } <= found
    assert not {"torch", "nvidia-cublas", "triton", "mujoco-studio", "av", "ruff", "sphinx"} & found
