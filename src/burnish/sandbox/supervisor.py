"""Our side of the spawner: start it, ask it for programs, hear what became of them.

What this file is: an asyncio client of `spawner`, one per event loop.
What it is not: it knows nothing of bubblewrap, limits or workspaces.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish.types import InfrastructureError, UsageError

MAX_ARGUMENTS = 512 << 10
"""Bytes of arguments that one program may be started with."""

_PROGRAM = Path(__file__).with_name("spawner.py")


@dataclass(frozen=True, slots=True)
class Ended:
    """`code` is bubblewrap's exit code for the program (128 + signal where one killed it), or None where it
    never started or was killed with its sandbox. `cpu_s` is of everything that ran, `peak` the bytes of the
    largest process."""

    code: int | None
    cpu_s: float
    peak: int


@dataclass(slots=True)
class Child:
    """A started program. `started` gives the pid of the first process of its pid namespace, or None if there
    was none; `ended` is set once every process of it is gone. `listener`, once it has started, is a socket that
    listens on the port that was asked for, in its network namespace; whoever takes it closes it."""

    number: int
    started: asyncio.Future[int | None]
    ended: asyncio.Future[Ended]
    listener: socket.socket | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """What to start. `uid` None keeps ours. `limits` are rlimits by name, set once it has its namespaces;
    `listen` is a port to listen on in its network namespace; `doors` are of the control groups that it is to be
    in (see `cgroup.Group`)."""

    argv: Sequence[str]
    uid: int | None
    limits: dict[str, tuple[int, int]]
    listen: int | None = None
    doors: Sequence[int] = ()


class Supervisor:
    """Made by `Supervisor.start()` inside a running event loop; `close` ends the spawner, and with it
    everything that it runs."""

    def __init__(self, process: subprocess.Popen[bytes], channel: socket.socket) -> None:
        self.loop = asyncio.get_running_loop()
        self.pid = process.pid
        self._process = process
        self._channel = channel
        self._children: dict[int, Child] = {}
        self._numbers = 0
        self.alive = True
        self.loop.add_reader(channel.fileno(), self._receive)

    @classmethod
    def start(cls) -> Supervisor:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MAX_ARGUMENTS)
        fd = theirs.fileno()
        # An own session: Ctrl-C is for us to handle, after which we end our sandboxes in order.
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_PROGRAM), str(fd), str(os.getpid())],
            env={},
            stdin=subprocess.DEVNULL,
            pass_fds=(fd,),
            cwd="/",
            start_new_session=True,
        )
        theirs.close()
        ours.setblocking(False)
        return cls(process, ours)

    def spawn(self, request: Request, fds: Sequence[int]) -> Child:
        """Starts a program with `fds` as its 0, 1, 2, ...; as the protocol in `spawner` says, the last two
        are kept there. The descriptors stay the caller's to close."""
        self._numbers += 1
        header = {
            "op": "spawn",
            "id": self._numbers,
            "uid": request.uid,
            "limits": request.limits,
            "listen": request.listen,
            "doors": len(request.doors),
        }
        arguments = [os.fsencode(argument) for argument in request.argv]
        if any(b"\0" in argument for argument in arguments):
            raise UsageError("an argument of a command holds a NUL byte, which no program can be given")
        message = b"\0".join([json.dumps(header).encode(), *arguments])
        if len(message) > MAX_ARGUMENTS:
            raise UsageError(
                f"the arguments of a command take {len(message)} bytes of at most {MAX_ARGUMENTS}: "
                "write them to a file in the workspace and pass its name"
            )
        try:
            socket.send_fds(self._channel, [message], [*fds[:-2], *request.doors, *fds[-2:]])
        except OSError as error:
            raise InfrastructureError(f"the process that runs sandboxes is gone: {error}") from error
        child = Child(self._numbers, self.loop.create_future(), self.loop.create_future())
        self._children[child.number] = child
        return child

    def kill(self, child: Child) -> None:
        """Ends all of it, now or, if it is only starting, as soon as it can be; `ended` tells when."""
        if self.alive and not child.ended.done():
            try:
                self._channel.send(json.dumps({"op": "kill", "id": child.number}).encode())
            except OSError:
                self._lost()

    def close(self) -> None:
        """Idempotent. Returns when the spawner is gone."""
        self._lost()
        self._process.wait()

    def _receive(self) -> None:
        while self.alive:
            try:
                data, fds, _, _ = socket.recv_fds(self._channel, 4096, 1, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                return
            except OSError:
                data, fds = b"", []
            if not data:
                self._lost()
                return
            self._note(json.loads(data), fds)

    def _note(self, said: dict[str, Any], fds: Sequence[int]) -> None:
        child = self._children[said["id"]]
        if said["event"] == "started":
            if fds:
                child.listener = socket.socket(fileno=fds[0])
            if not child.started.done():
                child.started.set_result(said["inner"])
            return
        del self._children[child.number]
        if not child.started.done():
            child.started.set_result(None)
        if child.ended.done():
            return
        if said["event"] == "failed":
            child.ended.set_exception(InfrastructureError(f"no process could be started: {said['detail']}"))
        else:
            child.ended.set_result(Ended(said["code"], said["cpu_s"], said["peak"]))

    def _lost(self) -> None:
        if not self.alive:
            return
        self.alive = False
        if not self.loop.is_closed():
            self.loop.remove_reader(self._channel.fileno())
        self._channel.close()
        children, self._children = self._children, {}
        for child in children.values():
            if self.loop.is_closed():
                continue
            if not child.started.done():
                child.started.set_result(None)
            if not child.ended.done():
                child.ended.set_exception(InfrastructureError("the process that runs sandboxes was ended"))
