"""The audit log: what is written, what a kill leaves, and every way of tampering that `verify` must name."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from burnish.observe.audit import AuditLog, MemoryAudit, Withheld, digest, loggable, read_events
from burnish.observe.chain import GENESIS, seal, verify
from burnish.types import Budget, BurnishError, Message, Task, UsageError


def clock() -> Callable[[], datetime]:
    start = datetime(2026, 12, 1, tzinfo=UTC)
    ticks = iter(range(1_000_000))
    return lambda: start + timedelta(milliseconds=next(ticks))


def written(path: Path, count: int = 8) -> list[bytes]:
    with AuditLog(path, clock()) as log:
        for i in range(count):
            log.append("tool_call", {"name": "shell", "turn": i})
    return path.read_bytes().splitlines(keepends=True)


def forged(line: bytes, **changes: Any) -> bytes:
    """The line with other contents and a hash that fits them."""
    event = json.loads(line) | changes
    del event["hash"]
    return seal(event)[1] + b"\n"


def test_a_line_is_canonical_and_its_hash_can_be_checked_by_hand(tmp_path: Path) -> None:
    lines = written(tmp_path / "events.jsonl", 2)
    previous = GENESIS
    for seq, line in enumerate(lines):
        event = json.loads(line)
        assert rfc8785.dumps(event) == line[:-1]
        told = event.pop("hash")
        assert told == hashlib.sha256(rfc8785.dumps(event)).hexdigest()
        assert event == {
            "seq": seq,
            "time": f"2026-12-01T00:00:00.{seq:03d}000Z",
            "kind": "tool_call",
            "data": {"name": "shell", "turn": seq},
            "prev": previous,
        }
        previous = told


def test_an_untouched_log_verifies_and_continues(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    written(path, 3)
    with AuditLog(path, clock()) as log:
        head = log.head(sync=True)
        log.append("checkpoint", {"step": 4})
    found = verify(path, {"step-000004": head})
    assert found.ok and found.events == 4 and found.seq == 3 and head["seq"] == 2
    assert found.to_json()["ok"] is True


def test_an_empty_log_has_a_head(tmp_path: Path) -> None:
    with AuditLog(tmp_path / "events.jsonl") as log:
        assert log.head() == {"seq": -1, "hash": GENESIS}
    assert verify(tmp_path / "events.jsonl", {"start": {"seq": -1, "hash": GENESIS}}).ok


def test_verify_without_a_log_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No audit log"):
        verify(tmp_path / "none.jsonl")


TAMPERINGS: dict[str, tuple[Callable[[list[bytes]], list[bytes]], int, str]] = {
    "edited text": (lambda x: [*x[:3], x[3].replace(b"shell", b"SHELL"), *x[4:]], 4, "edited"),
    "edited with a fitting hash": (
        lambda x: [*x[:3], forged(x[3], data={"name": "nothing"}), *x[4:]],
        5,
        "edited",
    ),
    "not JSON": (lambda x: [*x[:3], b"garbage\n", *x[4:]], 4, "edited"),
    "same data, other spelling": (
        lambda x: [*x[:3], json.dumps(json.loads(x[3])).encode() + b"\n", *x[4:]],
        4,
        "edited",
    ),
    "doubled key": (lambda x: [*x[:3], x[3].replace(b'"turn":3', b'"turn":9,"turn":3'), *x[4:]], 4, "edited"),
    "removed": (lambda x: [*x[:3], *x[4:]], 4, "removed"),
    "removed several": (lambda x: [*x[:2], *x[6:]], 3, "removed"),
    "removed the first": (lambda x: x[1:], 1, "removed"),
    "repeated": (lambda x: [*x[:4], x[2], *x[4:]], 5, "inserted"),
    "inserted in place of a number": (
        lambda x: [*x[:3], forged(x[2], seq=3, prev=json.loads(x[2])["hash"]), *x[3:]],
        5,
        "inserted",
    ),
    "swapped": (lambda x: [*x[:3], x[4], x[3], *x[5:]], 4, "reordered"),
    "blank line": (lambda x: [*x[:3], b"\n", *x[3:]], 4, "edited"),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_tampering_is_named_with_its_line(tmp_path: Path, name: str) -> None:
    tamper, line, change = TAMPERINGS[name]
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(tamper(written(path))))
    found = verify(path)
    assert not found.ok
    assert (found.problems[0].line, found.problems[0].change) == (line, change)
    assert str(line) in found.problems[0].why


@given(data=st.data())
def test_no_changed_byte_goes_unseen(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("log") / "events.jsonl"
    raw = bytearray(b"".join(written(path, 4)))
    with AuditLog(path, clock()) as log:
        head = log.head()
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] = data.draw(st.integers(0, 255).filter(lambda b: b != raw[place]))
    path.write_bytes(raw)
    assert not verify(path, {"checkpoint": head}).ok


def test_a_cut_tail_shows_against_a_head(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    lines = written(path)
    heads = {f"step-{s}": {"seq": s, "hash": json.loads(lines[s])["hash"]} for s in (2, 7)}
    path.write_bytes(b"".join(lines[:6]))
    assert verify(path).ok
    found = verify(path, heads)
    assert [p.change for p in found.problems] == ["cut"] and "step-7" in found.problems[0].why


def test_a_tail_cut_and_written_anew_shows_against_a_head(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    lines = written(path)
    head = {"seq": 7, "hash": json.loads(lines[7])["hash"]}
    path.write_bytes(b"".join(lines[:5]))
    with AuditLog(path, clock()) as log:
        for i in range(6):
            log.append("tool_call", {"name": "harmless", "turn": i})
    assert verify(path).ok
    assert [p.change for p in verify(path, {"step-7": head}).problems] == ["rewritten"]


@pytest.mark.parametrize("keep", [1, 40, -1])
def test_a_torn_last_line_is_set_aside_and_told(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "events.jsonl"
    lines = written(path, 3)
    path.write_bytes(b"".join(lines[:2]) + lines[2][:keep])
    found = verify(path)
    assert found.ok and found.events == 2 and found.torn_bytes == len(lines[2][:keep])
    AuditLog(path, clock()).close()
    aside = list(tmp_path.glob("events.torn-000002-*"))
    assert [a.read_bytes() for a in aside] == [lines[2][:keep]]
    recovery = read_events(path)[-1]
    assert recovery["kind"] == "recovery" and recovery["data"]["moved_to"] == aside[0].name
    assert verify(path).ok


def test_lines_of_any_length_are_continued(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with AuditLog(path) as log:
        log.append("run", {})
        log.append("run", {"numbers": list(range(60_000))})
    path.write_bytes(path.read_bytes() + b'{"data":' + b"1" * 200_000)
    AuditLog(path).close()
    found = verify(path)
    assert found.ok and found.seq == 2


def test_an_edited_last_line_is_not_continued(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    raw = b"".join(written(path)).replace(b'"turn":7', b'"turn":8')
    path.write_bytes(raw)
    with pytest.raises(BurnishError, match="burnish log verify"):
        AuditLog(path)
    assert path.read_bytes() == raw


def test_resume_keeps_what_happened_after_the_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    written(path, 3)
    with AuditLog(path, clock()) as log:
        head = log.head(sync=True)
        log.append("model_call", {})
    with AuditLog(path, clock()) as log:
        log.resume("step-000003", head)
    last = read_events(path)[-1]
    assert last["kind"] == "resume" and last["seq"] == 4
    assert last["data"] == {"checkpoint": "step-000003", "head": head, "events_after_head": 1}


def test_resume_refuses_a_log_that_the_checkpoint_does_not_know(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    written(path, 3)
    with AuditLog(path) as log, pytest.raises(BurnishError, match="tail was cut"):
        log.resume("step-000003", {"seq": 9, "hash": "0" * 64})


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with AuditLog(tmp_path / "events.jsonl"), pytest.raises(UsageError, match="another process"):
        AuditLog(tmp_path / "events.jsonl")
    AuditLog(tmp_path / "events.jsonl").close()


def test_a_closed_log_says_so(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "events.jsonl")
    log.close()
    log.close()
    with pytest.raises(BurnishError, match="closed"):
        log.append("run", {})


def test_threads_share_a_log(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with AuditLog(path) as log:
        threads = [
            threading.Thread(target=lambda t=t: [log.append("run", {"t": t, "i": i}) for i in range(50)])
            for t in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert verify(path).ok
    events = read_events(path)
    for t in range(4):
        assert [e["data"]["i"] for e in events if e["data"]["t"] == t] == list(range(50))


def test_a_full_disk_leaves_whole_lines_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    written(path, 2)
    with AuditLog(path, clock()) as log:
        real = os.write
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", lambda f, b: real(f, b[:25]))
            with pytest.raises(BurnishError, match=r"No space left.*MiB free.*burnish resume"):
                log.append("run", {})
        log.append("run", {"after": True})
    found = verify(path)
    assert found.ok and found.events == 3 and found.torn_bytes == 0


def test_what_may_be_written_down() -> None:
    task = Task("t1", "files", (Message("user", "x"),), (), Budget(), {"s": 1}, {"answer": "hunter2"})
    logged = loggable(
        {
            "task": task,
            "nested": {"Authorization": "Bearer hunter2", "secret": {"answer": "hunter2"}},
            "key": Withheld("hunter2"),
            "raw": b"hunter2",
            "long": "hunter2" * 100,
            "inside": [Budget(turns=3), {"hunter3"}],
            "large": 2**60,
            "nan": float("nan"),
            "array": np.float32(0.5),
            "array2": np.arange(3),
            "surrogate": "a\ud800",
            5: None,
        }
    )
    assert "hunter2" not in json.dumps(logged)
    assert logged["task"] == {"id": "t1", "domain": "files", "digest": task.digest()}
    assert logged["long"] == digest("hunter2" * 100) and logged["long"]["length"] == 700
    assert logged["inside"][0]["turns"] == 3 and logged["inside"][1] == ["hunter3"]
    assert (logged["large"], logged["nan"]) == (str(2**60), "nan")
    assert (logged["array"], logged["array2"], logged["5"]) == (0.5, [0, 1, 2], None)
    assert rfc8785.dumps(logged)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), plain, max_size=5))
def test_anything_logged_can_be_verified(
    tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any]
) -> None:
    path = tmp_path_factory.mktemp("log") / "events.jsonl"
    with AuditLog(path) as log:
        log.append("run", data)
        log.append("run", {"after": data})
    assert verify(path).ok


def test_the_fake_chains_like_the_log() -> None:
    audit = MemoryAudit(clock())
    audit.append("run", {"name": "a"})
    audit.append("verdict", {"reward": 1.0})
    first, second = audit.events
    assert second["prev"] == first["hash"] and audit.head() == {"seq": 1, "hash": second["hash"]}
