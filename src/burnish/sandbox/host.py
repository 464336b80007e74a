"""What the sandboxes of one process share on this machine.

What this file is: `Host`, the held lease, image, system call filter and spawner; and `Family`, the user id of
sandboxes that were forked from one another.
What it is not: a sandbox (see `local`).
"""

from __future__ import annotations

import os
from pathlib import Path

from burnish.sandbox import image, lease, probe, seccomp
from burnish.sandbox.cgroup import Group
from burnish.sandbox.supervisor import Supervisor
from burnish.types import Limits, UsageError


class Host:
    """What the sandboxes of one process share: lease, image, system call filter and spawner."""

    def __init__(self, root: Path | None) -> None:
        if root is not None:
            _check_root(root)
        overlays = probe.require()
        # Before Linux 5.14 RLIMIT_NPROC counts all that the user runs, inside and outside: with no uid of its
        # own a sandbox is then only watched for its number of processes.
        self.counts_processes = os.geteuid() == 0 or probe.kernel() >= (5, 14)
        self.image = image.prepare(lease.state_directory())
        self.overlays = overlays and self.image.overlay is not None
        self.lease = lease.Lease(root)
        first = self.lease.first_uid
        self.uids = [] if first is None else list(range(first + lease.BLOCK - 1, first - 1, -1))
        self._numbers = 0
        self._groups = probe.groups()
        if self._groups is not None:
            self.lease.note(tuple(self._groups.directories.values()))
        try:
            self.filter_fd = os.memfd_create("burnish-seccomp")
            os.write(self.filter_fd, seccomp.program())
            self.supervisor = Supervisor.start()
        except BaseException:
            self.lease.release()
            raise

    def number(self) -> int:
        """Another one each time."""
        self._numbers += 1
        return self._numbers

    def group(self, limits: Limits) -> Group | None:
        """A control group for one command; None where none can be made."""
        if self._groups is None:
            return None
        return self._groups.make(f"{self.lease.group_prefix}{self.number()}", limits)

    def close(self) -> None:
        self.supervisor.close()
        os.close(self.filter_fd)
        self.lease.release()


class Family:
    """Sandboxes that were forked from one another share a host uid, to whom the files of all of them belong.
    `uid` is None where we are not root. The uid is free again when the last member lets go."""

    def __init__(self, host: Host) -> None:
        self.uid = host.uids.pop() if host.uids else None
        if self.uid is None and host.lease.first_uid is not None:
            raise UsageError(f"sandboxes and snapshots hold all {lease.BLOCK} user ids: close some of them")
        self._host = host
        self._members = 1

    def join(self) -> Family:
        self._members += 1
        return self

    def leave(self) -> None:
        self._members -= 1
        if self._members == 0 and self.uid is not None:
            self._host.uids.append(self.uid)


def _check_root(root: Path) -> None:
    if not root.is_dir():
        raise UsageError(f"{root}, where sandboxes are to be made, is not a directory\nmkdir -p {root}")
    closed = image.closed_directory(root) if os.geteuid() == 0 else None
    if closed is not None:
        raise UsageError(
            f"sandboxes of root run as other users, which cannot enter {closed}: choose another root than "
            f"{root}, or none\nchmod o+x {closed}"
        )
