"""The only way out of a sandbox: an HTTP proxy that asks before it connects.

What this file is: CONNECT tunnels and plain HTTP requests, one a connection. Decided by name, then resolved here,
and connected to the very address that was checked; so neither a name that turns to a private address nor one that
changes its mind leads anywhere. In a tunnel the name of the TLS greeting must be the one that was decided on.
What it is not: it looks into no TLS, and it caches nothing.

Source: RFC 9110 section 7.6, RFC 9112 sections 3.2 and 6.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from burnish.sandbox.greeting import server_name
from burnish.sandbox.policy import Deny, Request, host_and_port
from burnish.sandbox.verdicts import Arbiter

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""(host, port) -> addresses. Raises OSError."""

PORT = 3128
"""Where the proxy is found inside a sandbox, on 127.0.0.1."""

_HEAD, _HEAD_S, _CONNECT_S, _IDLE_S = 32 << 10, 30.0, 10.0, 120.0
_PIECE = 64 << 10
_MOST = 64
_HOP_BY_HOP = frozenset((
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
    "upgrade", "host",
))  # fmt: skip


class Refused(Exception):
    """What the client is told: a status and a reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(slots=True)
class Flow:
    """One connection that was made, for the audit log."""

    target: str
    address: str
    sent: int = 0
    received: int = 0


async def resolve(host: str, port: int) -> Sequence[str]:
    """By this machine's resolver, in its order."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Proxy:
    """Serves one sandbox. `start` takes a listening socket, which may be of another network namespace."""

    def __init__(self, arbiter: Arbiter, sandbox: int, resolver: Resolver = resolve) -> None:
        self._arbiter = arbiter
        self._sandbox = sandbox
        self._resolver = resolver
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def start(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._server = await asyncio.start_server(self._accept, sock=listener, limit=_HEAD)

    async def close(self) -> None:
        """Idempotent; ends every connection."""
        if self._server is not None:
            self._server.close()
        for client in list(self._clients):
            client.cancel()
        if self._clients:
            await asyncio.wait(list(self._clients))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            if len(self._clients) > _MOST:
                raise Refused(503, f"more than {_MOST} connections at once")
            await self._serve(reader, writer)
        except Refused as refusal:
            await _tell(writer, refusal)
        except (OSError, EOFError, TimeoutError, asyncio.CancelledError):
            pass  # either side went away, or we close
        finally:
            self._clients.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await _read_head(reader)
        method, target, headers = head
        if method == "CONNECT":
            host, port = _target(target, None)
            their_reader, their_writer, flow = await self._connect(host, port)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await self._tunnel(host, (reader, writer), (their_reader, their_writer), flow)
        else:
            host, port, path = _origin(target)
            length = _body_length(headers)
            their_reader, their_writer, flow = await self._connect(host, port)
            their_writer.write(_forwarded(method, path, host, port, headers))
            await self._exchange(length, (reader, writer), (their_reader, their_writer), flow)

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Flow]:
        subject = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        verdict = await self._arbiter.decide(Request("network", subject, "connect"))
        if isinstance(verdict, Deny):
            raise Refused(403, f"{subject} is denied: {verdict.reason}")
        addresses = await self._addresses(host, port)
        for address in addresses:
            with suppress(OSError, TimeoutError):
                made = await asyncio.wait_for(asyncio.open_connection(address, port, limit=_HEAD), _CONNECT_S)
                return *made, Flow(subject, address)
        raise Refused(502, f"{subject} does not answer")

    async def _addresses(self, host: str, port: int) -> list[str]:
        try:
            ipaddress.ip_address(host)
            found: Sequence[str] = [host]
        except ValueError:
            try:
                found = await asyncio.wait_for(self._resolver(host, port), _CONNECT_S)
            except (OSError, TimeoutError):
                raise Refused(502, f"{host} has no address") from None
        public = [address for address in found if self._arbiter.policy.reachable(address)]
        if not public:
            reason = f"{host} is at {', '.join(found) or 'no address'}, which is not public"
            self._denied(reason)
            raise Refused(403, reason)
        return public

    async def _tunnel(self, host: str, ours: _Pair, theirs: _Pair, flow: Flow) -> None:
        """Bytes both ways, once the greeting was seen to be for `host`."""
        begin = time.monotonic()
        try:
            first = await asyncio.wait_for(ours[0].read(_PIECE), _IDLE_S)
            first += await _rest_of_greeting(ours[0], first)
            named = server_name(first)
            if named is not None and named != host:
                self._denied(f"a tunnel to {host} was used to greet {named or 'a host that cannot be read'}")
                return
            theirs[1].write(first)
            flow.sent += len(first)
            await _both(
                _relay(ours[0], theirs[1], flow, "sent"), _relay(theirs[0], ours[1], flow, "received")
            )
        finally:
            theirs[1].transport.abort()
            self._log(flow, begin)

    def _denied(self, reason: str) -> None:
        """What a policy had allowed, and we do not."""
        if self._arbiter.audit is not None:
            self._arbiter.audit.append("verdict", {
                "sandbox": self._sandbox, "verdict": "deny", "by": "proxy", "reason": reason,
            })  # fmt: skip

    async def _exchange(self, length: int | None, ours: _Pair, theirs: _Pair, flow: Flow) -> None:
        """One request's body on, and the answer back until its end; what else the client sends goes nowhere."""
        begin = time.monotonic()
        try:
            body = _copy_chunks(ours[0], theirs[1], flow) if length is None else (
                _copy_bytes(ours[0], theirs[1], length, flow)
            )  # fmt: skip
            sending = asyncio.ensure_future(body)
            try:
                await _relay(theirs[0], ours[1], flow, "received")
            finally:
                sending.cancel()
                with suppress(asyncio.CancelledError, OSError, EOFError, Refused):
                    await sending
        finally:
            theirs[1].transport.abort()
            self._log(flow, begin)

    def _log(self, flow: Flow, begin: float) -> None:
        if self._arbiter.audit is not None:
            self._arbiter.audit.append("network", {
                "sandbox": self._sandbox, "target": flow.target, "address": flow.address, "sent": flow.sent,
                "received": flow.received, "seconds": round(time.monotonic() - begin, 3),
            })  # fmt: skip


_Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _read_head(reader: asyncio.StreamReader) -> tuple[str, str, list[tuple[str, str]]]:
    """(method, target, headers by small name). Raises Refused for anything that is no HTTP/1 request."""
    try:
        raw = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _HEAD_S)
    except asyncio.LimitOverrunError:
        raise Refused(431, f"a request's head is longer than {_HEAD} bytes") from None
    lines = raw.decode("latin-1").split("\r\n")[:-2]
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[0].isalpha() or parts[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise Refused(400, "this is an HTTP proxy")
    headers = []
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip() or any(c in line for c in "\n\0"):
            raise Refused(400, "a header is malformed")
        headers.append((name.lower(), value.strip()))
    return parts[0].upper(), parts[1], headers


def _target(text: str, default: int | None) -> tuple[str, int]:
    try:
        host, port = host_and_port(text)
    except ValueError as error:
        raise Refused(400, str(error)) from None
    if port is None:
        port = default
    if port is None:
        raise Refused(400, f"{text!r} has no port")
    return host, port


def _origin(target: str) -> tuple[str, int, str]:
    try:
        parts = urlsplit(target)
        netloc = parts.netloc
    except ValueError as error:
        raise Refused(400, str(error)) from None
    if parts.scheme != "http" or not netloc or "@" in netloc:
        raise Refused(400, "give the whole address, http://host/path; for https use CONNECT")
    host, port = _target(netloc, 80)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return host, port, path


def _body_length(headers: Sequence[tuple[str, str]]) -> int | None:
    """Bytes of the body; None where it comes in chunks. Both at once is how requests are smuggled."""
    lengths = {value for name, value in headers if name == "content-length"}
    coded = [value.lower() for name, value in headers if name == "transfer-encoding"]
    if len(lengths) > 1 or (lengths and coded) or (coded and coded != ["chunked"]):
        raise Refused(400, "the length of the body is ambiguous")
    if coded:
        return None
    length = lengths.pop() if lengths else "0"
    if not length.isascii() or not length.isdigit():
        raise Refused(400, "the length of the body is no number")
    return int(length)


def _forwarded(method: str, path: str, host: str, port: int, headers: Sequence[tuple[str, str]]) -> bytes:
    name = f"[{host}]" if ":" in host else host
    lines = [f"{method} {path} HTTP/1.1", f"host: {name}" + ("" if port == 80 else f":{port}")]
    named = {v.strip().lower() for n, value in headers if n == "connection" for v in value.split(",")}
    lines += [f"{n}: {v}" for n, v in headers if n not in _HOP_BY_HOP and n not in named]
    return ("\r\n".join([*lines, "connection: close"]) + "\r\n\r\n").encode("latin-1")


async def _copy_bytes(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: int, flow: Flow
) -> None:
    while count > 0:
        piece = await reader.read(min(count, _PIECE))
        if not piece:
            raise EOFError
        writer.write(piece)
        await writer.drain()
        flow.sent += len(piece)
        count -= len(piece)


async def _copy_chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flow: Flow) -> None:
    while True:
        line = await reader.readuntil(b"\r\n")
        size = line.split(b";")[0].strip()
        if not size or len(size) > 8 or not all(c in b"0123456789abcdefABCDEF" for c in size):
            raise Refused(400, "a chunk's size is no number")
        writer.write(size + b"\r\n")
        count = int(size, 16)
        await _copy_bytes(reader, writer, count, flow)
        end = await reader.readuntil(b"\r\n")
        if end != b"\r\n":  # trailers are not passed on, nor bytes that the size did not announce
            raise Refused(400, "a chunk does not end where it said")
        writer.write(end)
        if count == 0:
            return


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flow: Flow, way: str) -> None:
    while piece := await asyncio.wait_for(reader.read(_PIECE), _IDLE_S):
        writer.write(piece)
        await asyncio.wait_for(writer.drain(), _IDLE_S)
        setattr(flow, way, getattr(flow, way) + len(piece))
    with suppress(OSError):
        writer.write_eof()


async def _both(one: Awaitable[None], other: Awaitable[None]) -> None:
    """Until both are done, or either fails."""
    tasks = [asyncio.ensure_future(one), asyncio.ensure_future(other)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _rest_of_greeting(reader: asyncio.StreamReader, first: bytes) -> bytes:
    """What is missing of a TLS record that `first` begins; nothing where it begins none."""
    if first[:1] != b"\x16":
        return b""
    rest = b""
    while len(first) + len(rest) < 5:
        rest += await asyncio.wait_for(reader.readexactly(1), _HEAD_S)
    whole = first + rest
    missing = 5 + int.from_bytes(whole[3:5]) - len(whole)
    return rest + (await asyncio.wait_for(reader.readexactly(missing), _HEAD_S) if missing > 0 else b"")


async def _tell(writer: asyncio.StreamWriter, refusal: Refused) -> None:
    body = f"{refusal}\n".encode()
    phrase = {400: "Bad Request", 403: "Forbidden", 431: "Header Too Large", 502: "Bad Gateway"}
    head = f"HTTP/1.1 {refusal.status} {phrase.get(refusal.status, 'Unavailable')}\r\n"
    head += (
        f"content-type: text/plain; charset=utf-8\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    with suppress(OSError, TimeoutError):
        writer.write(head.encode() + body)
        await asyncio.wait_for(writer.drain(), _CONNECT_S)
        writer.close()
        await asyncio.wait_for(writer.wait_closed(), _CONNECT_S)
