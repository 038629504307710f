"""Each trace of a machine that check_lock finds, seeded alone, with the line that it prints."""

from __future__ import annotations

import pytest

from check_lock import check

REGISTRY = "https://index.example.org/simple"
LOCK = f"""
version = 1

[[package]]
name = "ground"
version = "2.1.0"
source = {{ editable = "packages/ground" }}

[[package]]
name = "numbers-lib"
version = "1.2"
source = {{ registry = "{REGISTRY}" }}
sdist = {{ url = "https://files.example.org/a/numbers-lib-1.2.tar.gz", hash = "sha256:00", size = 1 }}
wheels = [{{ url = "https://files.example.org/b/numbers_lib-1.2-py3-none-any.whl", hash = "sha256:01" }}]
"""


@pytest.fixture
def lock(tree):
    """The workspace with a lock; call it to change one place."""
    tree.write("uv.lock", LOCK)

    def change(old: str, new: str) -> list[str]:
        tree.replace("uv.lock", old, new)
        return check(tree.root)

    return change


def test_a_lock_of_one_public_registry_passes(tree, lock):
    assert check(tree.root) == []


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("http://index.example.org/simple", "is not https"),
        ("https://10.1.2.3/simple", "names a host by its number"),
        ("https://[::1]/simple", "names a host by its number"),
        ("https://index.example.org:8443/simple", "names a port"),
        ("https://me:secret@index.example.org/simple", "holds a user name"),
        ("https://mirror/simple", "names a host that is not public"),
        ("https://mirror.internal/simple", "names a host that is not public"),
        ("file:///srv/wheels", "is not https"),
        ("/srv/wheels", "is not https"),
        ("../wheels", "is not https"),
    ],
)
def test_a_registry_that_is_not_public_is_named(lock, address, problem):
    assert lock(REGISTRY, address) == [f"uv.lock: {address} {problem}"]


def test_a_second_registry_is_named(lock):
    second = (
        f'{LOCK}\n[[package]]\nname = "x"\nsource = {{ registry = "https://other.example.org/simple" }}\n'
    )
    assert lock(LOCK, second) == [
        f"uv.lock: names 2 registries: {sorted([REGISTRY, 'https://other.example.org/simple'])}"
    ]


def test_a_second_host_of_downloads_is_named(lock):
    assert lock("https://files.example.org/b/", "https://cache.example.org/b/") == [
        "uv.lock: downloads from 2 hosts: ['cache.example.org', 'files.example.org']"
    ]


def test_a_wheel_of_this_machine_is_named(lock):
    assert lock('url = "https://files.example.org/b/', 'path = "/srv/wheels/') == [
        "uv.lock: '/srv/wheels/numbers_lib-1.2-py3-none-any.whl' is a path of one machine"
    ]


@pytest.mark.parametrize("kind", ["path", "directory", "git", "virtual"])
def test_a_package_from_elsewhere_is_named(lock, kind):
    assert lock(f'registry = "{REGISTRY}"', f'{kind} = "numbers"') == [
        f"uv.lock: numbers-lib comes from {{'{kind}': 'numbers'}}, not from the registry or this workspace"
    ]


def test_a_member_from_outside_the_packages_is_named(lock):
    assert lock("packages/ground", "elsewhere/ground") == [
        "uv.lock: ground is editable at 'elsewhere/ground', outside packages/"
    ]
