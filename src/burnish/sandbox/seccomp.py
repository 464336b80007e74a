"""The system calls that a sandbox refuses, as a classic BPF program.

What this file is: a deny-list, assembled by hand for x86-64 and AArch64 (native calls only).
What it is not: an allow-list; the namespaces and the dropped uid are the wall, this closes what they leave
open: nested namespaces, tracing, key rings, BPF, terminal injection, host sockets, and memory that belongs to
no process and so escapes every limit (memfd, System V shared memory and queues).

Source: seccomp(2), <linux/seccomp.h>, <linux/filter.h>.
"""

from __future__ import annotations

import errno
import os
import struct

from burnish.types import BurnishError

_LOAD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NR, _ARCH, _ARG0, _ARG1 = 0, 4, 16, 24  # low halves of the arguments: both architectures are little endian

_NEW_NAMESPACE = 0x7E020000  # every CLONE_NEW* flag of clone(2)
_TERMINAL_INJECTION = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_FAMILIES = (1, 2, 10, 16)  # unix, inet, inet6, netlink: the private network namespace contains them

# name: (x86-64, AArch64)
_REFUSED = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "unshare": (272, 97),
    "setns": (308, 268),
    "chroot": (161, 51),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "lookup_dcookie": (212, 18),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
}
# Answered as by an older kernel, so that libraries fall back: clone3 hides its flags behind a pointer.
_ABSENT = (435, 425, 426, 427)  # clone3, io_uring_setup, io_uring_enter, io_uring_register

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_IOCTL, _CLONE, _SOCKET = (16, 29), (56, 220), (41, 198)


def program(machine: str = "") -> bytes:
    """The filter for `machine` (default: this one), as an array of sock_filter, ready for bubblewrap's
    `--seccomp`. Raises BurnishError on an architecture that it was not written for."""
    machine = machine or os.uname().machine
    if machine not in _MACHINES:
        raise BurnishError(
            f"no system call filter for the architecture {machine!r}: the local sandbox runs on "
            f"{' and '.join(_MACHINES)} only. Use another sandbox on this machine."
        )
    column, audit = _MACHINES[machine]
    refuse = _ret(_ERRNO | errno.EPERM)
    code = [_op(_LOAD, _ARCH), _op(_JEQ, audit, 1, 0), _ret(_KILL), _op(_LOAD, _NR)]
    if machine == "x86_64":
        code += [_op(_JGE, 0x40000000, 0, 1), _ret(_ERRNO | errno.ENOSYS)]  # the x32 numbers
    for numbers in _REFUSED.values():
        code += [_op(_JEQ, numbers[column], 0, 1), refuse]
    for number in _ABSENT:
        code += [_op(_JEQ, number, 0, 1), _ret(_ERRNO | errno.ENOSYS)]
    requests = [step for value in _TERMINAL_INJECTION for step in (_op(_JEQ, value, 0, 1), refuse)]
    code += _when(_IOCTL[column], [_op(_LOAD, _ARG1), *requests, _ret(_ALLOW)])
    code += _when(_CLONE[column], [_op(_LOAD, _ARG0), _op(_JSET, _NEW_NAMESPACE, 0, 1), refuse, _ret(_ALLOW)])
    families = [step for value in _FAMILIES for step in (_op(_JEQ, value, 0, 1), _ret(_ALLOW))]
    code += _when(_SOCKET[column], [_op(_LOAD, _ARG0), *families, _ret(_ERRNO | errno.EAFNOSUPPORT)])
    return b"".join([*code, _ret(_ALLOW)])


def _when(number: int, body: list[bytes]) -> list[bytes]:
    return [_op(_JEQ, number, 0, len(body)), *body]


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def _ret(value: int) -> bytes:
    return _op(_RET, value)
