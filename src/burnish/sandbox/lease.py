"""Who may use which workspaces and host user ids on this machine, and clearing up after the dead.

What this file is: a lease on a directory for workspaces and on a block of uids, held by an flock, which the
kernel gives up when its holder dies however it dies.
What it is not: it starts nothing and knows nothing of bubblewrap.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import stat
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from burnish.sandbox.workspace import remove_tree
from burnish.types import BurnishError

BLOCK = 256
"""Uids, and so sandboxes open at once, of one lease."""

_DEATH_S = 5.0
_FIRST_UID = 1_900_000  # above what distributions hand out, subordinate ranges of /etc/subuid included
_BLOCKS = 256
_SMALL_FIRST, _SMALL_BLOCKS = 40_000, 64  # inside a container that maps 65,536 uids


def uid_range() -> tuple[int, int]:
    """(first uid, number of blocks) reserved for sandboxes on this machine. Raises BurnishError where this
    user namespace maps neither range."""
    lines = Path("/proc/self/uid_map").read_text().splitlines()
    extents = [tuple(map(int, line.split())) for line in lines]
    for first, blocks in ((_FIRST_UID, _BLOCKS), (_SMALL_FIRST, _SMALL_BLOCKS)):
        if any(start <= first and first + blocks * BLOCK <= start + count for start, _, count in extents):
            return first, blocks
    raise BurnishError(
        f"this root user cannot become another user: /proc/self/uid_map maps neither {_FIRST_UID} nor "
        f"{_SMALL_FIRST} and what follows\nrun as an ordinary user, or in a container that maps 65536 uids"
    )


def state_directory() -> Path:
    """Where leases, and what sandboxes share, are kept. Raises BurnishError where somebody else made it."""
    parent = Path("/var/tmp") if os.access("/var/tmp", os.W_OK) else Path(tempfile.gettempdir())
    path = parent / f"burnish-sandbox-{os.geteuid()}"
    path.mkdir(mode=0o711, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise BurnishError(
            f"{path} is not a directory that only this user can write to\nrm -r {path}   (as whoever made it)"
        )
    path.chmod(0o711)
    return path


class Lease:
    """A held lease. `directory` is for workspaces; `first_uid` is None unless we are root."""

    def __init__(self, root: Path | None) -> None:
        state = state_directory()
        first, blocks = uid_range() if os.geteuid() == 0 else (None, _BLOCKS)
        self._fd = -1
        for block in range(blocks):
            path = state / f"{block:03d}.lease"
            if self._fd >= 0 and not path.exists():
                break
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                continue
            uids = None if first is None else range(first + block * BLOCK, first + (block + 1) * BLOCK)
            _clear(fd, uids)
            if self._fd >= 0:
                os.close(fd)
                continue
            self._fd = fd
            self.first_uid = None if uids is None else uids.start
            if root is None:
                # Whoever holds the lock owns this name here, whatever an interrupted clearing up has left of it.
                remove_tree(state / f"burnish-workspaces-{os.geteuid()}-{block:03d}")
            self.directory = (root or state) / f"burnish-workspaces-{os.geteuid()}-{block:03d}"
            self.group_prefix = f"burnish-{os.geteuid()}-{block:03d}-"
        if self._fd < 0:
            raise BurnishError(
                f"all {blocks} leases in {state} are taken: too many processes of this user hold sandboxes"
            )
        self._take()

    def note(self, groups: Sequence[Path]) -> None:
        """Writes down what is to be cleared up should we die: also control groups, made in these directories with
        names that begin with `group_prefix`."""
        pid = os.getpid()
        note = {
            "pid": pid, "start": start_time(pid), "directory": str(self.directory.absolute()),
            "groups": [str(path) for path in groups], "prefix": self.group_prefix,
        }  # fmt: skip
        os.pwrite(self._fd, json.dumps(note).encode(), 0)

    def _take(self) -> None:
        self.note(())
        try:
            self.directory.mkdir(mode=0o711)
        except FileExistsError as error:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            raise BurnishError(f"{self.directory} exists and is not ours\nrm -r {self.directory}") from error

    def release(self) -> None:
        """Idempotent; removes the workspaces."""
        if self._fd >= 0:
            remove_tree(self.directory)
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1


def start_time(pid: int) -> int:
    """When a process started, in clock ticks since boot: with its pid it names a process for good."""
    return int(Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()[19])


def _clear(fd: int, uids: range | None) -> None:
    """Ends and removes what a holder that died has left."""
    note = os.pread(fd, 8192, 0)
    if not note:
        return
    try:
        found = json.loads(note)
        directory = str(found["directory"])
        groups, prefix = list(found.get("groups", ())), str(found.get("prefix", ""))
    except (ValueError, KeyError, TypeError):  # cut short as its writer died, before anything was made
        directory, groups, prefix = "", [], ""
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and _belongs(path, uids, directory):
            _end(int(path.name))
    if directory:
        remove_tree(Path(directory))
    for place in groups if prefix else ():
        for group in Path(place).glob(f"{prefix}*"):
            with suppress(OSError):
                group.rmdir()
    os.ftruncate(fd, 0)


def _end(pid: int) -> None:
    """Kills a process and waits until it is gone, and if it led a pid namespace, all of that too."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        select.select([handle], [], [], _DEATH_S)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)


def _belongs(process: Path, uids: range | None, directory: str) -> bool:
    try:
        if uids is not None:
            return process.stat().st_uid in uids
        arguments = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    ours = os.fsencode(directory) + b"/"
    mounting = not {b"--bind", b"--overlay"}.isdisjoint(arguments)
    return bool(directory) and mounting and any(item.startswith(ours) for item in arguments)
