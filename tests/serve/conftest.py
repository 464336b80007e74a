"""The tiny model's directory and renderer, shared by the tests of the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from burnish.model.renderer import Renderer
from tests.model.tiny import tiny_directory


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_directory(tmp_path_factory.mktemp("served") / "tiny")


@pytest.fixture(scope="session")
def renderer(tiny: Path) -> Renderer:
    return Renderer.from_directory(tiny)
