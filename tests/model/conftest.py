"""Model directories that the tests of this folder share: a tiny random one, and the packaged 135M one."""

from __future__ import annotations

from pathlib import Path

import pytest

from burnish.model.prepare import prepare_smollm2
from tests.model.tiny import tiny_directory

REAL = Path(__file__).parents[2] / "models" / "smollm2-135m-instruct"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_directory(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def real() -> Path:
    return prepare_smollm2(REAL)
