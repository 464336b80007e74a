"""The proxy, as a client inside a sandbox and a server outside see it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from burnish.observe.audit import MemoryAudit
from burnish.sandbox import LocalSandboxes
from burnish.sandbox.greeting import server_name
from burnish.sandbox.policy import AccessPolicy, Rule
from burnish.sandbox.proxy import Proxy
from burnish.sandbox.verdicts import Arbiter
from burnish.types import Limits

LOOPBACK = ("127.0.0.0/8",)


class World:
    """An echoing HTTP server, a resolver, and a proxy between them and a client."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.asked: list[str] = []
        self.audit = MemoryAudit()
        self.addresses: Sequence[str] = ["127.0.0.1"]
        self.port = self.proxy_port = 0

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self.addresses

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heard.append(head)
        length = next(
            (int(x.split(b":")[1]) for x in head.split(b"\r\n") if x.startswith(b"content-length")), 0
        )
        body = await reader.readexactly(length)
        if b"chunked" in head:
            body = await reader.readuntil(b"0\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    async def ask(self, text: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.proxy_port)
        writer.write(text)
        answer = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        return answer


@asynccontextmanager
async def world(*rules: Rule, private: tuple[str, ...] = LOOPBACK) -> AsyncIterator[World]:
    made = World()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    policy = AccessPolicy("test", rules or (Rule("network", "good.example", "allow"),), private=private)
    proxy = Proxy(Arbiter(policy, made.audit), 1, made.resolve)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    made.proxy_port = listener.getsockname()[1]
    await proxy.start(listener)
    try:
        yield made
    finally:
        await proxy.close()
        server.close()
        await server.wait_closed()


async def test_a_request_is_rewritten_and_its_body_passed_on() -> None:
    async with world() as w:
        text = (
            f"POST http://Good.Example:{w.port}/p?q HTTP/1.1\r\nHost: evil.example\r\nX-Mine: 1\r\nSecret: 2\r\n"
            "Connection: secret, keep-alive\r\nProxy-Authorization: x\r\nContent-Length: 4\r\n\r\nbody"
        )
        answer = await w.ask(text.encode())
        assert answer == b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody"
        (head,) = w.heard
        lines = head.decode().strip().split("\r\n")
        assert lines == [
            "POST /p?q HTTP/1.1", f"host: good.example:{w.port}", "x-mine: 1", "content-length: 4", "connection: close",
        ]  # fmt: skip
        (flow,) = [event["data"] for event in w.audit.events if event["kind"] == "network"]
        assert (flow["target"], flow["address"], flow["sent"]) == (f"good.example:{w.port}", "127.0.0.1", 4)
        assert flow["received"] == len(answer)


async def test_a_body_in_chunks() -> None:
    async with world() as w:
        head = f"POST http://good.example:{w.port}/ HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
        answer = await w.ask(head.encode() + b"4;note=x\r\nbody\r\n0\r\n\r\n")
        assert answer.endswith(b"4\r\nbody\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET https://good.example/ HTTP/1.1\r\n\r\n", 400),
        (b"GET http://user@good.example/ HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT good.example HTTP/1.1\r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
        (b"GET http://good.example/ HTTP/1.1\r\nbad header\r\n\r\n", 400),
        (b"GET http://good.example/ HTTP/1.1\r\nspaced : x\r\n\r\n", 400),
        (b"POST http://good.example/ HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400),
        (b"POST http://good.example/ HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", 400),
        (b"POST http://good.example/ HTTP/1.1\r\ntransfer-encoding: gzip, chunked\r\n\r\n", 400),
        (b"GET http://good.example/ HTTP/1.1\r\nx: " + b"a" * 70_000 + b"\r\n\r\n", 431),
        (b"GET http://bad.example/ HTTP/1.1\r\n\r\n", 403),
        (b"CONNECT bad.example:443 HTTP/1.1\r\n\r\n", 403),
        (b"CONNECT good.example:1 HTTP/1.1\r\n\r\n", 502),
    ],
)
async def test_what_is_refused_is_said_with_a_status(text: bytes, status: int) -> None:
    async with world() as w:
        answer = await w.ask(text)
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:200]
        assert w.heard == []


async def test_a_denied_name_is_never_looked_up_and_a_private_address_never_reached() -> None:
    async with world(private=()) as w:
        assert (await w.ask(b"GET http://bad.example/ HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 403")
        assert w.asked == []
        answer = await w.ask(f"GET http://good.example:{w.port}/ HTTP/1.1\r\n\r\n".encode())
        assert b"403" in answer and b"not public" in answer
        assert (w.asked, w.heard) == (["good.example"], [])
        assert [e["data"]["by"] for e in w.audit.events] == ["rule", "rule", "proxy"]


async def test_the_address_that_was_checked_is_the_one_connected_to() -> None:
    """Among several, private ones are passed over; and the name is looked up once."""
    async with world() as w:
        w.addresses = ["10.0.0.1", "127.0.0.1"]
        answer = await w.ask(f"GET http://good.example:{w.port}/ HTTP/1.1\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 200") and w.asked == ["good.example"]


def greeting(name: str | None) -> bytes:
    """A real ClientHello."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    out = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    return out.read()


def test_the_name_in_a_greeting() -> None:
    assert server_name(greeting("Good.Example")) == "good.example"
    assert server_name(greeting(None)) is None
    assert server_name(b"GET / HTTP/1.1\r\n") is None
    whole = greeting("good.example")
    for end in range(1, len(whole)):
        assert server_name(whole[:end]) in ("", None, "good.example")
    assert server_name(whole[:60]) == ""


@pytest.mark.parametrize("pieces", [1, 7])
async def test_a_tunnel_carries_the_greeting_of_its_own_host_only(pieces: int) -> None:
    async with world() as w:
        got: list[bytes] = []

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            got.append(await reader.readexactly(len(greeting("good.example"))))
            writer.write(b"hello back")
            writer.close()

        server = await asyncio.start_server(take, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        for name, answer in (("good.example", b"hello back"), ("evil.example", b"")):
            reader, writer = await asyncio.open_connection("127.0.0.1", w.proxy_port)
            writer.write(f"CONNECT good.example:{port} HTTP/1.1\r\n\r\n".encode())
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            text = greeting(name)
            for start in range(pieces):
                writer.write(text[start * len(text) // pieces : (start + 1) * len(text) // pieces])
                await writer.drain()
                await asyncio.sleep(0.001)
            try:
                assert await asyncio.wait_for(reader.read(), 30) == answer
            except ConnectionResetError:
                assert answer == b""
            writer.close()
        assert len(got) == 1 and server_name(got[0]) == "good.example"
        server.close()
        await server.wait_closed()


async def test_from_inside_a_sandbox() -> None:
    """Through the namespaces: a program that knows nothing but the usual variables reaches what it may."""
    async with world() as w:
        policy = AccessPolicy("p", (Rule("network", f"127.0.0.1:{w.port}", "allow"),), private=LOOPBACK)
        arbiter = Arbiter(policy, MemoryAudit())
        text = (
            "import sys, urllib.request, urllib.error\nfor url in sys.argv[1:]:\n"
            "    try: print(urllib.request.urlopen(url, b'x').read().decode())\n"
            "    except urllib.error.HTTPError as error: print(error.code, error.read().decode().strip())"
        )
        urls = (f"http://127.0.0.1:{w.port}/", "http://example.org/")
        async with LocalSandboxes(arbiter=arbiter) as sandboxes, await sandboxes.open() as sandbox:
            argv = ["python3", "-c", text, *urls]
            one, two = await asyncio.gather(*(sandbox.run(argv, limits=Limits(wall_s=60)) for _ in range(2)))
            again = await sandbox.run(argv, limits=Limits(wall_s=60))
        expected = "x\n403 example.org:80 is denied: no rule of p speaks of it\n"
        assert [r.stdout.decode() for r in (one, two, again)] == [expected] * 3, one.stderr
