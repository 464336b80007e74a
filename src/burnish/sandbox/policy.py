"""What an agent may do: rules as data, and the one question that is put to them.

What this file is: `Request`, the verdicts `Allow`, `Deny` and `Ask`, and `AccessPolicy`, which decides by its
first rule that matches; three presets, and policies from TOML files.
What it is not: enforcement. `proxy` and `guard` put the question and hold to the answer, `verdicts` asks people.
"""

from __future__ import annotations

import ipaddress
import posixpath
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from burnish.types import UsageError

Kind = Literal["network", "file", "syscall", "tool"]
Answer = Literal["allow", "deny", "ask"]

_NAT64 = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class Request:
    """Something that an agent wants. `subject` is `host:port`, an absolute path, a system call's or a tool's
    name; `operation` connect, read, write, remove or call; `arguments` are a tool call's."""

    kind: Kind
    subject: str
    operation: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Allow:
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Deny:
    reason: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Somebody has to say; where nobody does within `timeout_s` seconds, it is denied."""

    reason: str
    timeout_s: float


Verdict = Allow | Deny | Ask


@dataclass(frozen=True, slots=True)
class Rule:
    """`match` is a pattern for the subject: `*` stands for anything in one part of a path or of a host's name,
    `**` for any number of parts, `*.example.org` for that host and what is below it; a host without a port
    means every port. `operations` empty means all; `arguments` are patterns for a tool call's, by name, in which
    `*` stands for anything."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    kind: Kind
    match: str
    verdict: Answer
    reason: str = ""
    operations: tuple[str, ...] = ()
    arguments: Mapping[str, str] = field(default_factory=dict)

    def _fits(self, pattern: str, value: Any) -> bool:
        """A value that may be a path counts as written and as what it leads to: `out/../x` is in `out` for no rule
        that allows, and is `x` for every rule that does not."""
        found = [bool(_plain(pattern).fullmatch(text)) for text in (str(value), _leads_to(str(value)))]
        return all(found) if self.verdict == "allow" else any(found)

    def matches(self, request: Request) -> bool:
        if self.kind != request.kind or (self.operations and request.operation not in self.operations):
            return False
        if not all(
            self._fits(pattern, request.arguments.get(n, "")) for n, pattern in self.arguments.items()
        ):
            return False
        if self.kind == "network":
            return _is_at(self.match, request.subject)
        if self.kind == "file":
            return bool(_path(self.match).fullmatch(_leads_to(request.subject)))
        return bool(_plain(self.match).fullmatch(request.subject))


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """The first rule that matches decides; where none does, `defaults` of the kind, and where that is silent,
    no. `private` are networks (as in 10.0.0.0/8) that may be reached although they are not public; no rule
    reaches any other that is not."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: str
    rules: tuple[Rule, ...] = ()
    defaults: Mapping[Kind, Answer] = field(default_factory=dict)
    private: tuple[str, ...] = ()
    ask_timeout_s: float = 60.0

    def __post_init__(self) -> None:
        if not self.ask_timeout_s > 0:
            raise UsageError(f"policy {self.name}: ask_timeout_s must be positive")
        for network in self.private:
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                raise UsageError(f"policy {self.name}: private: {error}") from None
        for rule in self.rules:
            if rule.arguments and rule.kind != "tool":
                raise UsageError(
                    f"policy {self.name}: only a rule for tools can have arguments, not {rule.match!r}"
                )
            if rule.kind == "file" and not rule.match.startswith("/"):
                raise UsageError(f"policy {self.name}: {rule.match!r} is not an absolute path")

    def decide(self, request: Request) -> Verdict:
        if request.kind == "network":
            try:
                host_and_port(request.subject)
            except ValueError as error:
                return Deny(str(error))
        for rule in self.rules:
            if rule.matches(request):
                return self._verdict(rule.verdict, rule.reason or f"the rule for {rule.match}")
        return self._verdict(self.defaults.get(request.kind, "deny"), f"no rule of {self.name} speaks of it")

    @property
    def reaches_out(self) -> bool:
        """Whether there is anything on a network that it might allow."""
        answers = [rule.verdict for rule in self.rules if rule.kind == "network"]
        return any(answer != "deny" for answer in (*answers, self.defaults.get("network", "deny")))

    def reachable(self, address: str) -> bool:
        """Whether a connection to this address may be made at all, whatever name led to it: it is public, or in
        one of `private`."""
        found = ipaddress.ip_address(address.partition("%")[0])
        inner = _carried(found)
        if inner is not None and inner != found:
            return self.reachable(str(inner))
        networks = [ipaddress.ip_network(network) for network in self.private]
        if any(found.version == network.version and found in network for network in networks):
            return True
        return found.is_global and not found.is_multicast

    def _verdict(self, answer: Answer, reason: str) -> Verdict:
        if answer == "ask":
            return Ask(reason, self.ask_timeout_s)
        return Allow(reason) if answer == "allow" else Deny(reason)


OFFLINE = AccessPolicy("offline", defaults={"tool": "allow"})
"""No network at all."""

BUILD = replace(
    OFFLINE,
    name="build",
    rules=tuple(
        Rule("network", f"{host}:443", "allow", "a package index")
        for host in (
            "pypi.org", "files.pythonhosted.org", "registry.npmjs.org", "index.crates.io", "static.crates.io",
            "proxy.golang.org", "sum.golang.org", "deb.debian.org", "security.debian.org", "archive.ubuntu.com",
        )
    ),
)  # fmt: skip
"""The package indexes, over TLS."""

OPEN_WEB = replace(
    OFFLINE,
    name="open-web",
    rules=(
        Rule("network", "**:80", "allow", "the public web"),
        Rule("network", "**:443", "allow", "the public web"),
    ),
)
"""Every public host on the ports of the web; private and metadata addresses stay out of reach."""

PRESETS = {policy.name: policy for policy in (OFFLINE, BUILD, OPEN_WEB)}


def find_policy(name: str) -> AccessPolicy:
    """A preset by name, or the policy in a TOML file. Raises UsageError."""
    if name in PRESETS:
        return PRESETS[name]
    path = Path(name)
    if not path.is_file():
        raise UsageError(f"{name} is neither a preset ({', '.join(PRESETS)}) nor a policy file")
    try:
        data = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    return from_data(data, str(path))


def from_data(data: Mapping[str, Any], where: str) -> AccessPolicy:
    """A policy from plain data, as a TOML file has it: `rule` is a list of tables, and `preset` names one whose
    rules follow. Raises UsageError naming the field that does not fit."""
    plain = dict(data)
    rules = plain.pop("rule", [])
    preset = plain.pop("preset", "offline")
    if preset not in PRESETS:
        raise UsageError(f"{where}: preset {preset!r} is not one of {', '.join(PRESETS)}")
    base = PRESETS[preset]
    plain = {"name": Path(where).stem, "defaults": base.defaults, **plain, "rules": rules}
    try:
        found = TypeAdapter(AccessPolicy).validate_python(plain)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]).replace("rules", "rule", 1)
        raise UsageError(f"{where}: {place}: {first['msg']}") from None
    return replace(found, rules=(*found.rules, *base.rules))


def _carried(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for, to which a router or this machine would send instead."""
    if not isinstance(address, ipaddress.IPv6Address):
        return None
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None)


def host_and_port(subject: str) -> tuple[str, int | None]:
    """`example.org:443` or `[::1]:80`, normalized: small letters, ASCII, no final dot, addresses as `ipaddress`
    writes them. Raises ValueError."""
    host, colon, port = subject.rpartition(":")
    if not colon or not port.isdigit() or (":" in host and not host.startswith("[")):
        host, port = subject, ""
    if port and not 0 < int(port) < 65536:
        raise ValueError(f"{port} is no port")
    return host_name(host), int(port) if port else None


def host_name(host: str) -> str:
    """One host, normalized as by `host_and_port`. Raises ValueError for what names no host."""
    bare = host.strip("[]").rstrip(".").lower()
    try:
        return str(ipaddress.ip_address(bare.partition("%")[0]))
    except ValueError:
        pass
    if re.fullmatch(r"[0-9.]+|0x[0-9a-f.x]+", bare):
        raise ValueError(f"{host!r} is a number that some take for an address")
    try:
        text = bare.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise ValueError(f"{host!r} is no host: {error}") from None
    if not re.fullmatch(r"(?!-)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*", text):
        raise ValueError(f"{host!r} is no host")
    return text


def _leads_to(path: str) -> str:
    """Without `.`, `..` and doubled slashes, also at the start, where POSIX would keep two."""
    return re.sub("^/+", "/", posixpath.normpath(path))


def _is_at(pattern: str, subject: str) -> bool:
    wanted, colon, port = pattern.rpartition(":")
    if not colon or not (port.isdigit() or port == "*"):
        wanted, port = pattern, "*"
    host, actual = host_and_port(subject)
    if port != "*" and (actual is None or int(port) != actual):
        return False
    if wanted == "**":
        return True
    if wanted.startswith("*."):
        return host == wanted[2:].lower() or host.endswith(wanted[1:].lower())
    return bool(_name(wanted.lower()).fullmatch(host))


@lru_cache(maxsize=1024)
def _path(pattern: str) -> re.Pattern[str]:
    return _compiled(pattern, "[^/]*")


@lru_cache(maxsize=1024)
def _name(pattern: str) -> re.Pattern[str]:
    return _compiled(pattern.strip("[]"), r"[^.]*")


@lru_cache(maxsize=1024)
def _plain(pattern: str) -> re.Pattern[str]:
    return _compiled(pattern, ".*")


def _compiled(pattern: str, star: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*|\*)", pattern)
    text = "".join({"**": ".*", "*": star}.get(part, re.escape(part)) for part in parts)
    return re.compile(text, re.DOTALL)
