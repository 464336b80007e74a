"""Fixtures that leave nothing behind, and check it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from burnish.sandbox import LocalSandbox, LocalSandboxes


def descendants(pid: int) -> list[int]:
    """All living processes below `pid`. The spawner is the subreaper of whatever it starts, so below it is
    every process of every sandbox, however it was started."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:
        return []
    return [*children, *(below for child in children for below in descendants(child))]


def spawner_of(sandboxes: LocalSandboxes) -> int:
    assert sandboxes.spawner is not None
    return sandboxes.spawner


@pytest.fixture
async def sandboxes() -> AsyncIterator[LocalSandboxes]:
    async with LocalSandboxes() as opened:
        yield opened


@pytest.fixture
async def sandbox(sandboxes: LocalSandboxes) -> AsyncIterator[LocalSandbox]:
    """Every test that uses it also asserts that no process survives and that the workspace is gone."""
    opened = await sandboxes.open()
    yield opened
    assert descendants(spawner_of(sandboxes)) == []
    await opened.close()
    assert not opened.path.exists()
