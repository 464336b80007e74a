"""Rules, presets, policy files, and the questions that they leave to people."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from burnish.observe.audit import MemoryAudit
from burnish.sandbox.policy import (
    BUILD,
    OFFLINE,
    OPEN_WEB,
    AccessPolicy,
    Allow,
    Ask,
    Deny,
    Request,
    Rule,
    find_policy,
    host_and_port,
)
from burnish.sandbox.verdicts import Arbiter, Question
from burnish.types import UsageError


def connect(subject: str) -> Request:
    return Request("network", subject, "connect")


def allowed(policy: AccessPolicy, subject: str) -> bool:
    return isinstance(policy.decide(connect(subject)), Allow)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("example.org:443", ["example.org:443", "EXAMPLE.org.:443"], ["example.org:80", "a.example.org:443"]),
        (
            "example.org",
            ["example.org:443", "example.org:80"],
            ["example.org.evil.test:443", "xexample.org:443"],
        ),
        ("*.example.org:443", ["example.org:443", "a.b.example.org:443"], ["badexample.org:443"]),
        ("api.*.org:443", ["api.x.org:443"], ["api.x.y.org:443", "api.org:443"]),
        ("**:443", ["anything.test:443", "[2606:4700::1111]:443"], ["anything.test:80"]),
        ("bücher.example:443", [], ["xn--bcher-kva.example:443"]),
        ("xn--bcher-kva.example:443", ["bücher.example:443", "xn--bcher-kva.example:443"], []),
        ("[::1]:80", ["[::1]:80", "[0:0:0:0:0:0:0:1]:80"], ["[::2]:80"]),
        ("a.b:443", ["a.b:443"], ["axb:443"]),
    ],
)
def test_hosts_match_by_their_parts(pattern: str, yes: list[str], no: list[str]) -> None:
    policy = AccessPolicy("p", (Rule("network", pattern, "allow"),))
    assert [subject for subject in yes if not allowed(policy, subject)] == []
    assert [subject for subject in no if allowed(policy, subject)] == []


@pytest.mark.parametrize(
    "subject", ["", "a b:80", "-x.org:80", "x.org:0", "x.org:99999", "1.2:80", "0x7f.1:80"]
)
def test_what_is_no_host_is_denied_by_the_most_open_policy(subject: str) -> None:
    assert isinstance(AccessPolicy("p", defaults={"network": "allow"}).decide(connect(subject)), Deny)


def test_hosts_are_normalized() -> None:
    assert host_and_port("Example.ORG.:8080") == ("example.org", 8080)
    assert host_and_port("[::1]:80") == ("::1", 80)
    assert host_and_port("::1") == ("::1", None)
    assert host_and_port("[fe80::1%eth0]:80") == ("fe80::1", 80)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("/data/**", ["/data/x", "/data/a/b", "/data/a/../b"], ["/data", "/database", "/data/../etc/passwd"]),
        ("/data/*.csv", ["/data/x.csv"], ["/data/a/x.csv", "/data/xcsv"]),
    ],
)
def test_paths_match_by_their_parts(pattern: str, yes: list[str], no: list[str]) -> None:
    rule = Rule("file", pattern, "allow", operations=("read",))
    assert [path for path in yes if not rule.matches(Request("file", path, "read"))] == []
    assert [path for path in no if rule.matches(Request("file", path, "read"))] == []
    assert not rule.matches(Request("file", yes[0], "write"))


def test_the_first_rule_that_matches_decides_and_silence_is_no() -> None:
    policy = AccessPolicy(
        "tools",
        (
            Rule("tool", "run", "deny", "no removing", arguments={"command": "*rm *"}),
            Rule("tool", "run", "ask", "a command"),
            Rule("tool", "read*", "allow"),
        ),
        ask_timeout_s=5,
    )
    assert policy.decide(Request("tool", "run", "call", {"command": "ls; rm -r /"})) == Deny("no removing")
    assert policy.decide(Request("tool", "run", "call", {"command": "ls"})) == Ask("a command", 5)
    assert isinstance(policy.decide(Request("tool", "read_file", "call")), Allow)
    assert policy.decide(Request("tool", "write", "call")) == Deny("no rule of tools speaks of it")
    assert isinstance(policy.decide(Request("syscall", "read", "call")), Deny)


def test_a_path_in_a_call_counts_as_what_it_leads_to() -> None:
    inside = AccessPolicy("p", (Rule("tool", "write", "allow", arguments={"path": "out/*"}),))
    outside = AccessPolicy(
        "p", (Rule("tool", "write", "deny", arguments={"path": "/etc/*"}),), defaults={"tool": "allow"}
    )
    for path, fine in (("out/x", True), ("out/../x", False), ("out/a/../../x", False), ("./out/x", False)):
        assert isinstance(inside.decide(Request("tool", "write", "call", {"path": path})), Allow) is fine
    for path, fine in (("/etc/x", False), ("/tmp/../etc/x", False), ("//etc/x", False), ("/tmp/x", True)):
        assert isinstance(outside.decide(Request("tool", "write", "call", {"path": path})), Allow) is fine
    assert isinstance(outside.decide(Request("tool", "write", "call")), Allow)


def test_presets() -> None:
    assert not OFFLINE.reaches_out and BUILD.reaches_out and OPEN_WEB.reaches_out
    assert isinstance(OFFLINE.decide(Request("tool", "anything", "call")), Allow)
    assert (
        allowed(BUILD, "pypi.org:443")
        and not allowed(BUILD, "pypi.org:80")
        and not allowed(BUILD, "x.org:443")
    )
    assert allowed(OPEN_WEB, "x.org:443") and not allowed(OPEN_WEB, "x.org:22")


PRIVATE = (
    "127.0.0.1", "10.1.2.3", "169.254.169.254", "192.168.1.1", "100.64.0.1", "0.0.0.0", "255.255.255.255",
    "224.0.0.1", "::1", "::", "fe80::1%eth0", "fd00::1", "ff02::1", "::ffff:10.0.0.1", "64:ff9b::7f00:1",
    "2002:a00:1::", "2001:0:4136:e378:8000:63bf:f5ff:fffe",
)  # fmt: skip


def test_only_public_addresses_can_be_reached_but_for_those_named() -> None:
    assert [address for address in PRIVATE if OPEN_WEB.reachable(address)] == []
    for address in ("1.1.1.1", "2606:4700:4700::1111", "64:ff9b::101:101"):
        assert OPEN_WEB.reachable(address)
    mirror = AccessPolicy("mirror", private=("10.1.0.0/16",))
    assert (
        mirror.reachable("10.1.2.3")
        and mirror.reachable("::ffff:10.1.2.3")
        and not mirror.reachable("10.2.0.1")
    )


FILE = """
preset = "build"
ask_timeout_s = 2.5
private = ["10.0.0.0/8"]

[defaults]
tool = "ask"

[[rule]]
kind = "network"
match = "*.corp.example:8443"
verdict = "ask"
reason = "the company's own"

[[rule]]
kind = "tool"
match = "read"
verdict = "allow"
"""


def test_a_policy_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(FILE)
    policy = find_policy(str(tmp_path / "mine.toml"))
    assert (policy.name, policy.private) == ("mine", ("10.0.0.0/8",))
    assert policy.decide(connect("a.corp.example:8443")) == Ask("the company's own", 2.5)
    assert allowed(policy, "pypi.org:443")
    assert isinstance(policy.decide(Request("tool", "write", "call")), Ask)
    assert find_policy("open-web") is OPEN_WEB


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rule = 3", "rule"),
        ("[[rule]]\nkind = 'network'\nmatch = 'x'\nverdict = 'maybe'", r"rule\.0\.verdict"),
        ("[[rule]]\nkind = 'network'\nmatch = 'x'\nverdikt = 'allow'", r"rule\.0\.verdi"),
        ("colour = 'red'", "colour"),
        ("preset = 'wide'", "preset 'wide' is not one of offline, build, open-web"),
        ("private = ['10.0.0.1/8']", "private"),
        ("ask_timeout_s = 0", "positive"),
        ("[[rule]]\nkind = 'file'\nmatch = 'x'\nverdict = 'allow'", "absolute"),
        (
            "[[rule]]\nkind = 'file'\nmatch = '/x'\nverdict = 'allow'\n[rule.arguments]\na = 'b'",
            "only a rule for tools",
        ),
        ("= 3", "is not TOML"),
    ],
)
def test_a_wrong_policy_file_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(UsageError, match=said):
        find_policy(str(tmp_path / "p.toml"))


def test_no_such_policy() -> None:
    with pytest.raises(UsageError, match="neither a preset"):
        find_policy("wide")


ASKS = AccessPolicy("asks", defaults={"network": "ask"}, ask_timeout_s=0.05)
PATIENT = AccessPolicy("asks", defaults={"network": "ask"}, ask_timeout_s=60)


async def test_nobody_answers_is_no() -> None:
    audit = MemoryAudit()
    arbiter = Arbiter(ASKS, audit)
    verdict = await arbiter.decide(connect("x.org:443"))
    assert isinstance(verdict, Deny) and "nobody answered within 0.05 s" in verdict.reason
    assert arbiter.pending() == []
    (event,) = audit.events
    assert (event["kind"], event["data"]["verdict"], event["data"]["by"]) == ("verdict", "deny", "timeout")
    assert event["data"]["request"]["subject"] == "x.org:443" and event["data"]["waited_s"] >= 0.05


@pytest.mark.parametrize("allow", [True, False])
async def test_a_person_answers_through_the_list(allow: bool) -> None:
    arbiter = Arbiter(PATIENT, MemoryAudit())
    waiting = [asyncio.create_task(arbiter.decide(connect(f"{name}.org:443"))) for name in "ab"]
    await asyncio.sleep(0)
    first, second = arbiter.pending()
    assert (first.request.subject, second.request.subject) == ("a.org:443", "b.org:443")
    assert 0 < first.left_s <= 60
    arbiter.answer(second.number, allow, by="anna")
    verdict = await waiting[1]
    assert isinstance(verdict, Allow if allow else Deny) and "anna" in verdict.reason
    assert arbiter.pending() == [first]
    with pytest.raises(UsageError, match="does not wait"):
        arbiter.answer(second.number, True, by="late")
    waiting[0].cancel()
    await asyncio.wait(waiting)
    assert arbiter.pending() == []


async def test_a_callback_answers_and_its_failure_is_no() -> None:
    async def yes(question: Question) -> bool:
        return question.request.subject == "good.org:443"

    async def broken(_: Question) -> bool:
        raise RuntimeError("the pager is down")

    async def silent(_: Question) -> bool:
        await asyncio.sleep(900)
        return True

    assert isinstance(await Arbiter(PATIENT, asker=yes).decide(connect("good.org:443")), Allow)
    assert isinstance(await Arbiter(PATIENT, asker=yes).decide(connect("bad.org:443")), Deny)
    verdict = await Arbiter(PATIENT, asker=broken).decide(connect("x.org:443"))
    assert isinstance(verdict, Deny) and "RuntimeError" in verdict.reason
    assert isinstance(await Arbiter(ASKS, asker=silent).decide(connect("x.org:443")), Deny)
