"""The process that starts, limits and reaps sandboxed programs. Run as a program, by path, never imported.

What this file is: a small, single-threaded parent for bubblewrap. A trainer holds gigabytes, threads and
perhaps secrets; forking it would be slow and would carry all of that along, so it asks this process instead,
which does not fork either: posix_spawn copies no page tables.
As the subreaper of what it starts it also learns the true cost of each program, and knows when all of it is
gone.
What it is not: it takes no decision. It uses only the standard library and imports nothing of Burnish.

Protocol, one datagram a message on a SOCK_SEQPACKET socket. In: a JSON header, for `spawn` followed by the
arguments, each after a NUL, with the descriptors for 0, 1, 2 and those that the arguments name from 3 on; then
those that stay here: `doors` of control groups, one that lets bubblewrap go on, and one on which it reports. Out:
`started`, `failed` and `ended`; with `started`, where a port was asked for, a descriptor that listens on it
inside. Descriptors that are not placed by number close when the program is executed.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Iterator
from typing import Any

_RESERVED = 16  # descriptors below are placed by number in the child, so received ones must lie above
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_UNIGNORED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGCHLD)  # as a shell starts a program

LIBC = ctypes.CDLL(None, use_errno=True)


class Run:
    """One started program: bubblewrap (`outer`), and the first process of its pid namespace (`inner`)."""

    def __init__(self, request: dict[str, Any], outer: int, status: int, gate: int) -> None:
        self.number: int = request["id"]
        self.uid: int | None = request["uid"]
        self.limits: dict[str, list[int]] = request["limits"]
        self.listen: int | None = request["listen"]
        self.listener: int | None = None
        self.doors: list[int] = []
        self.outer = outer
        self.inner: int | None = None
        self.status: int | None = status
        self.gate: int | None = gate
        self.text = b""
        self.code: int | None = None
        self.condemned = False
        self.trouble = ""
        self.outer_done = False
        self.inner_done = False
        self.cpu = 0.0
        self.peak = 0


class Spawner:
    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.runs: dict[int, Run] = {}
        self.by_outer: dict[int, Run] = {}
        self.by_status: dict[int, Run] = {}
        self.strays: dict[int, tuple[float, int]] = {}
        self.poll = select.poll()

    def serve(self, parent: int) -> None:
        wake, waker = socket.socketpair()
        wake.setblocking(False)
        waker.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        for fd in (self.channel.fileno(), wake.fileno(), parent):
            self.poll.register(fd, select.POLLIN)
        while True:
            for fd, _ in self.poll.poll():
                if fd == parent:
                    return
                if fd == wake.fileno():
                    drain(wake)
                    self.reap()
                elif fd == self.channel.fileno():
                    if not self.receive():
                        return
                elif fd in self.by_status:
                    self.read_status(self.by_status[fd])

    def receive(self) -> bool:
        room = socket.CMSG_SPACE(16 * 4)
        data, ancillary, _, _ = self.channel.recvmsg(1 << 20, room, socket.MSG_CMSG_CLOEXEC)
        if not data:
            return False
        fds = array.array("i")
        for _, _, payload in ancillary:
            fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
        header, *argv = data.split(b"\0")
        request = json.loads(header)
        if request["op"] == "spawn":
            self.spawn(request, argv, list(fds))
        elif request["id"] in self.runs:
            run = self.runs[request["id"]]
            run.condemned = True
            self.kill(run)
        return True

    def spawn(self, request: dict[str, Any], argv: list[bytes], fds: list[int]) -> None:
        *placed, gate, status = fds
        split = len(placed) - request["doors"]
        placed, doors = placed[:split], placed[split:]
        try:
            actions = [(os.POSIX_SPAWN_DUP2, fd, place) for place, fd in enumerate(placed)]
            with identity(request["uid"]):
                pid = os.posix_spawn(argv[0], argv, {}, file_actions=actions, setsigdef=_UNIGNORED)
        except OSError as error:
            self.send({"event": "failed", "id": request["id"], "detail": str(error)})
            for fd in fds:
                os.close(fd)
            return
        for fd in placed:
            os.close(fd)
        os.set_blocking(status, False)
        run = Run(request, pid, status, gate)
        run.doors = doors
        self.runs[run.number] = self.by_outer[pid] = self.by_status[status] = run
        self.poll.register(status, select.POLLIN)

    def read_status(self, run: Run) -> None:
        """bubblewrap writes JSON objects, one a line, in pieces."""
        while run.status is not None:
            try:
                piece = os.read(run.status, 4096)
            except BlockingIOError:
                return
            if not piece:
                self.poll.unregister(run.status)
                del self.by_status[run.status]
                os.close(run.status)
                run.status = None
                return
            run.text += piece
            *lines, run.text = run.text.split(b"\n")
            for line in lines:
                self.note(run, json.loads(line))

    def note(self, run: Run, said: dict[str, int]) -> None:
        if "exit-code" in said:
            run.code = said["exit-code"]
        if "child-pid" in said and run.inner is None:
            run.inner = said["child-pid"]
            self.open_gate(run, said["child-pid"])
            started = {"event": "started", "id": run.number, "outer": run.outer, "inner": run.inner}
            self.send(started, run.listener)
            if run.condemned:
                self.kill(run)

    def open_gate(self, run: Run, inner: int) -> None:
        """Sets the limits and lets bubblewrap go on. Not before it has made its user namespace: until then
        RLIMIT_NPROC counts all that an ordinary user runs."""
        try:
            for door in run.doors:
                os.write(door, str(inner).encode())
            with identity(run.uid):
                for name, (soft, hard) in run.limits.items():
                    resource.prlimit(inner, getattr(resource, name), (soft, hard))
            if run.listen is not None:
                run.listener = listen_inside(inner, run.uid, run.listen)
            assert run.gate is not None
            os.write(run.gate, b"\n")
        except (OSError, ValueError) as error:
            run.condemned = True
            run.trouble = f"its limits could not be set: {error}"
        close_gate(run)

    def kill(self, run: Run) -> None:
        """Killing bubblewrap kills its child by the parent-death signal, once it is set: so not before
        `inner` is known. A pid is only signalled while it is our unreaped child."""
        if run.inner is not None and not run.outer_done:
            os.kill(run.outer, signal.SIGKILL)

    def reap(self) -> None:
        while True:
            try:
                pid, _, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            cost = (usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)
            run = self.by_outer.pop(pid, None)
            if run is not None:
                self.outer_gone(run, cost)
                continue
            for other in self.runs.values():
                if other.inner == pid:
                    self.inner_gone(other, cost)
                    break
            else:
                self.strays[pid] = cost

    def outer_gone(self, run: Run, cost: tuple[float, int]) -> None:
        run.outer_done = True
        run.cpu += cost[0]
        self.read_status(run)
        if run.inner is None:
            run.inner_done = True  # never made
        elif run.inner in self.strays:
            self.inner_gone(run, self.strays.pop(run.inner))
        elif not run.inner_done:
            if is_child(run.inner):
                os.kill(run.inner, signal.SIGKILL)
            else:
                run.inner_done = True  # reaped by bubblewrap itself
        self.finish(run)

    def inner_gone(self, run: Run, cost: tuple[float, int]) -> None:
        run.inner_done = True
        run.cpu += cost[0]
        run.peak = cost[1]
        self.finish(run)

    def finish(self, run: Run) -> None:
        if not (run.outer_done and run.inner_done) or run.number not in self.runs:
            return
        del self.runs[run.number]
        if run.status is not None:
            self.poll.unregister(run.status)
            del self.by_status[run.status]
            os.close(run.status)
            run.status = None
        close_gate(run)
        if run.trouble:
            self.send({"event": "failed", "id": run.number, "detail": run.trouble})
            return
        self.send({"event": "ended", "id": run.number, "code": run.code, "cpu_s": run.cpu, "peak": run.peak})

    def send(self, message: dict[str, Any], fd: int | None = None) -> None:
        socket.send_fds(self.channel, [json.dumps(message).encode()], [] if fd is None else [fd])
        if fd is not None:
            os.close(fd)


def listen_inside(inner: int, uid: int | None, port: int) -> int:
    """A descriptor that listens on `port` in the network namespace of `inner`. A child makes it, since who has
    entered a user namespace does not come back."""
    namespaces = [os.open(f"/proc/{inner}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in ("user", "net")]
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            if uid is not None:
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            for namespace in namespaces:
                if LIBC.setns(namespace, 0) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            listener = socket.socket()
            listener.bind(("0.0.0.0", port))  # the loopback device may not be up yet
            listener.listen()
            socket.send_fds(theirs, [b"."], [listener.fileno()])
        finally:
            os._exit(0)
    theirs.close()
    for namespace in namespaces:
        os.close(namespace)
    _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    ours.close()
    os.waitpid(child, 0)
    if not fds:
        raise OSError("nothing could be made to listen in its network namespace")
    os.set_inheritable(fds[0], False)
    return fds[0]


def is_child(pid: int) -> bool:
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def close_gate(run: Run) -> None:
    for door in run.doors:
        os.close(door)
    run.doors = []
    if run.gate is not None:
        os.close(run.gate)
        run.gate = None


@contextlib.contextmanager
def identity(uid: int | None) -> Iterator[None]:
    """Makes this process user `uid` for a while, with root in reserve (the saved id). A program started
    meanwhile keeps none of that: exec makes the effective id the saved one, and drops every capability."""
    if uid is None:
        yield
        return
    os.setresgid(uid, uid, 0)
    os.setresuid(uid, uid, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)


def drain(wake: socket.socket) -> None:
    try:
        while wake.recv(4096):
            pass
    except BlockingIOError:
        pass


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    parent = os.pidfd_open(int(sys.argv[2]))
    null = os.open(os.devnull, os.O_RDWR)
    for place in range(_RESERVED):
        try:
            os.fstat(place)
        except OSError:
            os.dup2(null, place, inheritable=False)
    channel.set_inheritable(False)
    if os.geteuid() == 0:
        os.setgroups([])
    os.chdir("/")
    if LIBC.prctl(_SUBREAPER, 1, 0, 0, 0) != 0:
        raise SystemExit("PR_SET_CHILD_SUBREAPER was refused")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(ConnectionError):
        Spawner(channel).serve(parent)
    # What runs dies with us: bubblewrap was told to.


if __name__ == "__main__":
    main()
