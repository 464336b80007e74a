"""The arguments that bubblewrap is given: the walls of the local sandbox.

What this file is: one pure function from an image, a view of a workspace and limits to an argument vector.
What it is not: it runs nothing, and it drops no identity. bubblewrap must never be started as uid 0: then the
host's /proc/sys opens for writing inside, whatever it is told.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence
from pathlib import Path

from burnish.sandbox.image import Image
from burnish.sandbox.layers import View
from burnish.sandbox.proxy import PORT
from burnish.types import Limits

SECCOMP, STATUS, GATE = 3, 4, 5
"""Descriptors that the arguments name: the system call filter, bubblewrap's report, and what it waits for
until its limits are set."""

SCRATCH = ("/tmp", "/dev/shm")
"""Temporary filesystems in memory, each as large as the workspace may be; empty at every run."""

STEP = "/opt/burnish/step"
"""Where the program of step.c is inside."""

_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")

_SPARE_PROCESSES = 8
"""Above the limit, so that exceeding it is seen, and named, rather than only refused."""


def arguments(
    image: Image, view: View, limits: Limits, argv: Sequence[str], proxied: bool = False
) -> list[str]:
    """bubblewrap's argument vector, its path first. Inside, the command is user 1000 in /work; `proxied` tells its
    programs where the proxy is."""
    size = str(limits.disk)
    command = [image.overlay if view.below and image.overlay else image.bwrap, *_walls(image)]
    for path in SCRATCH:
        command += ["--size", size, "--tmpfs", path]
    command += _work(view)
    if proxied:
        address = f"http://127.0.0.1:{PORT}"
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            command += ["--setenv", name, address]
        command += ["--setenv", "SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"]
    command += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/work"]
    command += ["--seccomp", str(SECCOMP), "--json-status-fd", str(STATUS), "--block-fd", str(GATE)]
    return [*command, "--", *_step(image, view), *argv]


def _step(image: Image, view: View) -> list[str]:
    """What puts the command under Landlock: no more of the file system than the mounts show, and less of it."""
    if image.step is None:
        return []
    writable = ["/work", *SCRATCH] + ([] if view.copy is None else ["/copy"])
    own = [path for path in _SYSTEM if Path(path).is_dir() and not Path(path).is_symlink()]
    rules = ["l:/", "d:/dev", *(f"r:{path}" for path in ("/usr", "/etc", "/opt", "/proc", *own))]
    return [STEP, *rules, *(f"w:{path}" for path in writable), "--"]


def _work(view: View) -> list[str]:
    found = ["--bind", str(view.upper), "/work"]
    if view.below:
        found = [part for layer in reversed(view.below) for part in ("--overlay-src", str(layer))]
        found += ["--overlay", str(view.upper), str(view.scratch), "/work"]
    return found if view.copy is None else [*found, "--bind", str(view.copy), "/copy"]


def rlimits(limits: Limits, processes: bool = True) -> dict[str, tuple[int, int]]:
    """By name. `processes` leaves RLIMIT_NPROC in or out."""
    seconds = math.ceil(limits.cpu_s)
    found = {
        "RLIMIT_AS": (limits.memory, limits.memory),
        "RLIMIT_FSIZE": (limits.file_size, limits.file_size),
        "RLIMIT_NOFILE": (limits.open_files, limits.open_files),
        "RLIMIT_CPU": (seconds, seconds + 1),
        "RLIMIT_CORE": (0, 0),
        "RLIMIT_MEMLOCK": (64 << 10, 64 << 10),
        "RLIMIT_MSGQUEUE": (0, 0),
    }
    if processes:
        ceiling = limits.processes + _SPARE_PROCESSES
        found["RLIMIT_NPROC"] = (ceiling, ceiling)
    return found


@functools.cache
def _walls(image: Image) -> tuple[str, ...]:
    walls = ["--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000", "--hostname", "sandbox"]
    walls += ["--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"]
    for name, value in environment(image).items():
        walls += ["--setenv", name, value]
    walls += ["--ro-bind", "/usr", "/usr"]
    for path in map(Path, _SYSTEM):
        if path.is_symlink():
            walls += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            walls += ["--ro-bind", str(path), str(path)]
    walls += ["--ro-bind", str(image.etc), "/etc"]
    if image.python is not None:
        walls += ["--ro-bind", str(image.python), "/opt/python"]
    if image.step is not None:
        walls += ["--ro-bind", str(image.step), STEP]
    walls += ["--proc", "/proc", "--tmpfs", "/dev"]
    for device in ("null", "zero", "full", "random", "urandom"):
        walls += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        walls += ["--symlink", f"/proc/self/fd{target}", f"/dev/{name}"]
    return tuple(walls)


def environment(image: Image) -> dict[str, str]:
    """All that a sandboxed program finds in its environment, the same on every machine."""
    found = {
        "PATH": os.pathsep.join(("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")),
        "HOME": "/work",
        "USER": "agent",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "TERM": "dumb",
        "MALLOC_ARENA_MAX": "1",  # glibc reserves 128 MB of address space for each further arena
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONNOUSERSITE": "1",
    }
    if image.python is not None:
        found["PATH"] = f"/opt/python/bin{os.pathsep}{found['PATH']}"
    if image.libraries:
        found["LD_LIBRARY_PATH"] = "/opt/python/lib"
    return found
