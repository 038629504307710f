"""Where a new repository can take the layers from: the git repository that this installation came from, if any."""

from __future__ import annotations

import json
from importlib.metadata import distribution
from urllib.parse import urlsplit, urlunsplit

__all__ = ["git_sources"]

_OWN = "unilab-core"
_LAYERS = (_OWN, "unilab-managers", "unilab-rl", "unisim")


def git_sources() -> str:
    """Returns the table `[tool.uv.sources]` that names the git repository and commit of this installation, or nothing.

    Installers record where a distribution came from (PEP 610). An installation from wheels or from a checkout has no
    source that would mean the same on another machine.
    """
    recorded = json.loads(distribution(_OWN).read_text("direct_url.json") or "{}")
    vcs = recorded.get("vcs_info", {})
    if vcs.get("vcs") != "git":
        return ""
    url, commit = json.dumps(_without_secret(recorded["url"])), json.dumps(vcs["commit_id"])
    folder = recorded.get("subdirectory", "").removesuffix(_OWN)
    lines = [
        f"{name} = {{ git = {url}, rev = {commit}, subdirectory = {json.dumps(folder + name)} }}\n"
        for name in _LAYERS
    ]
    return "\n[tool.uv.sources]  # all layers from one commit\n" + "".join(lines)


def _without_secret(url: str) -> str:
    """Returns the URL without a password or token, which is not to be written to a file that is shared."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    kept = (
        f"{user.partition(':')[0]}@" if at and parts.scheme == "ssh" else ""
    )  # ssh does not go without a user
    return urlunsplit(parts._replace(netloc=kept + host))
