"""Control groups: limits that the kernel keeps over all processes of a command together.

What this file is: finding where this process may make groups, of version 2 or 1; and `Group`, made for one command:
memory and number of processes are bounded in it, and what all of it used is read at once.
What it is not: needed. Where no group can be made the watch over the process tree stands alone (see `watch`).

Source: the Linux kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/{memory,pids,cpuacct}.rst.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from burnish.types import Limits

SPARE_PROCESSES = 8
"""Above the limit, so that exceeding it is seen, and named, rather than only refused."""

_TRIES, _PAUSE_S = 20, 0.005


@dataclass(frozen=True, slots=True)
class Place:
    """Where groups can be made. `directories` are by controller; in version 2 there is one for all."""

    version: int
    directories: Mapping[str, Path]

    def make(self, name: str, limits: Limits) -> Group:
        """An empty group of that name. Raises OSError; nothing of it is left then."""
        made = Group(self.version, {c: d / name for c, d in self.directories.items()})
        try:
            for path in dict.fromkeys(made.paths.values()):
                path.mkdir()
            for controller, file, value in _settings(self.version, limits):
                with suppress(FileNotFoundError):  # swap is not accounted for everywhere
                    (made.paths[controller] / file).write_text(str(value))
            made.open()
        except BaseException:
            made.remove()
            raise
        return made


def _settings(version: int, limits: Limits) -> list[tuple[str, str, int]]:
    most = limits.processes + SPARE_PROCESSES + 1  # and the first process of the pid namespace
    if version == 2:
        return [
            ("memory", "memory.max", limits.memory), ("memory", "memory.swap.max", 0),
            ("memory", "memory.oom.group", 1), ("pids", "pids.max", most),
        ]  # fmt: skip
    return [
        ("memory", "memory.limit_in_bytes", limits.memory), ("memory", "memory.memsw.limit_in_bytes", limits.memory),
        ("pids", "pids.max", most),
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Use:
    """By all that ever ran in a group: seconds of processor time, tasks now, and how many processes the kernel
    ended for their memory."""

    cpu_s: float
    tasks: int
    out_of_memory: int


class Group:
    """A group for one command. `doors` are open descriptors: a pid that is written to each is in it."""

    def __init__(self, version: int, paths: Mapping[str, Path]) -> None:
        self.version = version
        self.paths = paths
        self.doors: list[int] = []

    def open(self) -> None:
        for path in dict.fromkeys(self.paths.values()):
            self.doors.append(os.open(path / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))

    def use(self) -> Use:
        if self.version == 2:
            cpu = _numbers(self.paths["memory"] / "cpu.stat").get("usage_usec", 0) / 1e6
            killed = _numbers(self.paths["memory"] / "memory.events").get("oom_kill", 0)
        else:
            cpu = _number(self.paths["cpuacct"] / "cpuacct.usage") / 1e9
            killed = _numbers(self.paths["memory"] / "memory.oom_control").get("oom_kill", 0)
        return Use(cpu, max(0, _number(self.paths["pids"] / "pids.current") - 1), killed)

    def pids(self) -> tuple[int, ...]:
        """The processes in it."""
        return tuple(map(int, (self.paths["pids"] / "cgroup.procs").read_text().split()))

    def remove(self) -> None:
        """Idempotent. What ran in it must have ended; the kernel may need a moment to notice."""
        for door in self.doors:
            os.close(door)
        self.doors = []
        for path in dict.fromkeys(self.paths.values()):
            for _ in range(_TRIES):
                try:
                    path.rmdir()
                except FileNotFoundError:
                    pass
                except OSError:
                    time.sleep(_PAUSE_S)
                    continue
                break


def find(root: Path = Path("/"), tried: bool = True) -> Place | None:
    """Where this process may make groups with both controllers, or None. With `tried` a process is moved into one
    and back out of existence, since what may be written is known for certain only then."""
    mounts = _mounts((root / "proc/self/mountinfo").read_text())
    own = _own((root / "proc/self/cgroup").read_text())
    for place in (*_second(root, mounts, own), *_first(root, mounts, own)):
        if not tried or _works(place):
            return place
    return None


Mounts = Mapping[str, tuple[str, str]]


def _second(root: Path, mounts: Mounts, own: Mapping[str, str]) -> list[Place]:
    """Beside us, else below us: a group that holds processes may hand no controllers to groups below it."""
    if "" not in mounts or "" not in own:
        return []
    here = _directory(root, mounts[""], own[""])
    return [
        Place(2, {"memory": path, "pids": path})
        for path in (here.parent, here)
        if {"memory", "pids"} <= set(_read(path / "cgroup.subtree_control").split())
    ]


def _first(root: Path, mounts: Mounts, own: Mapping[str, str]) -> list[Place]:
    names = ("memory", "pids", "cpuacct")
    if any(name not in mounts or name not in own for name in names):
        return []
    return [Place(1, {name: _directory(root, mounts[name], own[name]) for name in names})]


def _directory(root: Path, mount: tuple[str, str], path: str) -> Path:
    """Of a group, where it is mounted. A container may have mounted only a part, which its paths then begin with."""
    shown, point = mount
    inner = os.path.relpath(path, shown)
    base = root / point.lstrip("/")
    return base if inner.startswith("..") else base / inner


def _mounts(text: str) -> Mounts:
    """By controller, "" for version 2: (the part that is mounted, where)."""
    found: dict[str, tuple[str, str]] = {}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(), after.split(maxsplit=2)
        if kind == "cgroup2":
            found.setdefault("", (fields[3], fields[4]))
        elif kind == "cgroup":
            for option in options.split(","):
                found.setdefault(option, (fields[3], fields[4]))
    return found


def _own(text: str) -> Mapping[str, str]:
    """By controller, "" for version 2: the group that this process is in."""
    found = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = path
    return found


def _works(place: Place) -> bool:
    try:
        group = place.make(f"burnish-probe-{os.getpid()}", Limits())
    except OSError:
        return False
    try:
        with subprocess.Popen(["/bin/sleep", "60"], stdin=subprocess.DEVNULL, env={}) as sleeper:
            try:
                enter(group.doors, sleeper.pid)
                return sleeper.pid in group.pids()
            finally:
                sleeper.kill()
    except OSError:
        return False
    finally:
        group.remove()


def enter(doors: Sequence[int], pid: int) -> None:
    """Moves a process into a group. Raises OSError where that is not allowed."""
    for door in doors:
        os.write(door, str(pid).encode())


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _number(path: Path) -> int:
    text = _read(path).strip()
    return int(text) if text.isdigit() else 0


def _numbers(path: Path) -> dict[str, int]:
    lines = [line.split() for line in _read(path).splitlines()]
    return {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdigit()}
