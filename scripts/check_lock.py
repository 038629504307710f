"""uv.lock names one public registry and nothing of the machine that wrote it.

`uv lock --check` accepts a lock that was written while a folder of wheels of one machine was set in the
environment. Here every source is a member below packages/ or the one registry, and every address is https.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from _workspace import run

PRIVATE_ENDINGS = (
    ".corp",
    ".home",
    ".internal",
    ".intranet",
    ".lan",
    ".local",
    ".localdomain",
    ".localhost",
    ".test",
)


def _address_problem(address: str) -> str | None:
    """Why an address is not a public https one."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    if parts.scheme != "https":
        return "is not https"
    if parts.username or parts.password:
        return "holds a user name"
    if parts.port:
        return "names a port"
    try:
        ipaddress.ip_address(host)
    except ValueError:
        private = "." not in host or host.endswith(PRIVATE_ENDINGS)
        return "names a host that is not public" if private else None
    return "names a host by its number"


def _strings(value: Any) -> Iterator[str]:
    """Every string in a parsed file."""
    if isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, str):
        yield value


def _source_errors(package: dict[str, Any]) -> Iterator[str]:
    source = dict(package.get("source", {}))
    name = package["name"]
    if "registry" in source:
        return
    if set(source) != {"editable"}:
        yield f"uv.lock: {name} comes from {source}, not from the registry or this workspace"
    elif not re.fullmatch(r"packages/[a-z-]+", str(source["editable"])):
        yield f"uv.lock: {name} is editable at {source['editable']!r}, outside packages/"


def check(root: Path) -> list[str]:
    """The errors of a workspace's lock, one line each."""
    lock = tomllib.loads((root / "uv.lock").read_text())
    packages = lock.get("package", [])
    errors = [error for package in packages for error in _source_errors(package)]
    registries = {
        str(package["source"]["registry"]) for package in packages if "registry" in package.get("source", {})
    }
    if len(registries) > 1:
        errors.append(f"uv.lock: names {len(registries)} registries: {sorted(registries)}")
    downloads = {urlsplit(text).hostname for text in _strings(packages) if text.startswith("https:")} - {
        urlsplit(registry).hostname for registry in registries
    }
    if len(downloads) > 1:
        errors.append(f"uv.lock: downloads from {len(downloads)} hosts: {sorted(map(str, downloads))}")
    for text in sorted(set(_strings(lock)) | registries):
        if "://" in text or text in registries:
            problem = _address_problem(text)
            if problem:
                errors.append(f"uv.lock: {text} {problem}")
        elif text.startswith(("/", "~", "..")) or re.match(r"[A-Za-z]:[\\/]", text):
            errors.append(f"uv.lock: {text!r} is a path of one machine")
    return errors


if __name__ == "__main__":
    run(check)
