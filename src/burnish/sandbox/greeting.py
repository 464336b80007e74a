"""Which host a TLS client asks for.

What this file is: reading the server name out of a ClientHello, the one part of TLS that is not encrypted.
What it is not: TLS. An encrypted ClientHello shows its outer name only: a host that offers to hide others behind its
own name can be used to reach those.

Source: RFC 8446 section 4.1.2, RFC 6066 section 3.
"""

from __future__ import annotations


def server_name(greeting: bytes) -> str | None:
    """The host that a TLS ClientHello names; "" where it hides or garbles it; None where there is no TLS or no
    name at all."""
    if greeting[:1] != b"\x16":
        return None
    try:
        return _server_name(greeting[5:])
    except (IndexError, ValueError):
        return ""


def _server_name(hello: bytes) -> str | None:
    if hello[0] != 1:
        return ""
    body = _Bytes(hello[4 : 4 + int.from_bytes(hello[1:4])])
    body.take(2 + 32)
    body.vector(1)
    body.vector(2)
    body.vector(1)
    if not body.left:
        return None
    extensions = _Bytes(body.vector(2))
    name = None
    while extensions.left:
        kind, content = int.from_bytes(extensions.take(2)), _Bytes(extensions.vector(2))
        if kind == 0:
            entry = _Bytes(content.vector(2))
            if entry.take(1) != b"\0":
                return ""
            name = entry.vector(2).decode("ascii").lower().rstrip(".")
    return name


class _Bytes:
    """Reading from the front. Raises IndexError beyond the end."""

    def __init__(self, data: bytes) -> None:
        self.left = data

    def take(self, count: int) -> bytes:
        if count > len(self.left):
            raise IndexError
        taken, self.left = self.left[:count], self.left[count:]
        return taken

    def vector(self, size: int) -> bytes:
        return self.take(int.from_bytes(self.take(size)))
