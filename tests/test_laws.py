"""The laws of the code base, held over `src/burnish`, and each shown to catch what breaks it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.laws import rules
from tests.laws.tree import Source, graph, sources

PACKAGE = Path(__file__).parents[1] / "src" / "burnish"
HEADER = '"""A file.\n\nWhat this file is: made up.\nWhat it is not: real.\n"""\n'
LAWS = (
    rules.layer_order,
    rules.serving_does_not_train,
    rules.no_cycles,
    rules.sizes,
    rules.honest_names,
    rules.headers,
    rules.nothing_dangerous,
    rules.no_leftovers,
)


@pytest.fixture(scope="module")
def package() -> list[Source]:
    return sources(PACKAGE)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_package_keeps_the_law(package: list[Source], law: rules.Law) -> None:
    assert law(package) == []


def test_the_laws_see_the_whole_package(package: list[Source]) -> None:
    edges = graph(package)
    assert len(edges) == len(list(PACKAGE.rglob("*.py"))) > 50
    assert "burnish.train.journal" in edges["burnish.train.loop"]
    assert "burnish.types" in edges["burnish.interfaces"]


def made_up(root: Path, files: dict[str, str]) -> list[Source]:
    """A package of files by path; a leading header is put before every text that has none."""
    for name, text in {"__init__.py": '"""Made up."""\n', **files}.items():
        path = root / "burnish" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if text.startswith('"""') else HEADER + text, encoding="utf-8")
    return sources(root / "burnish")


def long_function(lines: int) -> str:
    return "def work():\n" + "    x = 1\n" * (lines - 1)


GOOD = {
    "types.py": "import json\n",
    "train/loop.py": "from burnish.types import Task\nfrom burnish import types\nmodel.eval()\n",
    "serve/app.py": "from burnish.engine import local\nsubprocess.run(['ls'], shell=False)\n",
    "engine/local.py": long_function(59),
    "cli.py": "from burnish.train import loop\nfrom burnish.serve.app import run\n",
}


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_good_tree_breaks_nothing(tmp_path: Path, law: rules.Law) -> None:
    assert law(made_up(tmp_path, GOOD)) == []


BREACHES: list[tuple[str, rules.Law, dict[str, str], str]] = [
    ("upward", rules.layer_order, {"model/a.py": "from burnish.train.loop import train\n"}, "burnish.train"),
    ("lazy", rules.layer_order, {"model/a.py": "def f():\n    import burnish.train.loop\n"}, "burnish.train"),
    (
        "type-only",
        rules.layer_order,
        {"model/a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from burnish import cli\n"},
        "burnish.cli",
    ),
    ("relative", rules.layer_order, {"model/a.py": "from ..train import loop\n"}, "burnish.train"),
    (
        "from a package",
        rules.layer_order,
        {"model/__init__.py": "from ..train import loop\n"},
        "burnish.train",
    ),
    (
        "dynamic",
        rules.layer_order,
        {"model/a.py": "import importlib\nimportlib.import_module('burnish.train.loop')\n"},
        "burnish.train",
    ),
    ("no such layer", rules.layer_order, {"plugins/a.py": "x = 1\n"}, "no layer"),
    ("into no layer", rules.layer_order, {"model/a.py": "import burnish.plugins.a\n"}, "burnish.plugins"),
    ("the root imports", rules.layer_order, {"__init__.py": "from burnish.types import Task\n"}, "types"),
    (
        "serve trains",
        rules.serving_does_not_train,
        {"serve/app.py": "def f():\n    from burnish.train import loop\n"},
        "burnish.serve.app reaches burnish.train.loop",
    ),
    (
        "serve trains through another",
        rules.serving_does_not_train,
        {"serve/app.py": "import burnish.deploy.plan\n", "deploy/plan.py": "import burnish.train.loop\n"},
        "burnish.serve.app reaches burnish.train.loop",
    ),
    (
        "cycle",
        rules.no_cycles,
        {
            "model/a.py": "from burnish.model import b\n",
            "model/b.py": "from burnish.model.c import x\n",
            "model/c.py": "def f():\n    from . import a\n",
        },
        "burnish.model.a -> burnish.model.b -> burnish.model.c -> burnish.model.a",
    ),
    ("long file", rules.sizes, {"model/a.py": "x = 1\n" * 450}, "under 450"),
    ("long loop", rules.sizes, {"train/loop.py": "x = 1\n" * 150}, "under 150"),
    ("long function", rules.sizes, {"model/a.py": long_function(60)}, "work has 60 lines"),
    (
        "long method",
        rules.sizes,
        {"model/a.py": "class A:\n    async def f(self):\n" + "        x = 1\n" * 60},
        "f has 61 lines",
    ),
    ("utils", rules.honest_names, {"model/utils.py": "x = 1\n"}, "utils"),
    ("helpers", rules.honest_names, {"helpers/__init__.py": '"""Made up."""\n'}, "helpers"),
    ("mixin", rules.honest_names, {"model/a.py": "class SaveMixin:\n    pass\n"}, "SaveMixin"),
    ("manager", rules.honest_names, {"model/a.py": "class CacheManager:\n    pass\n"}, "CacheManager"),
    ("no header", rules.headers, {"model/a.py": '""""""\nx = 1\n'}, "no header"),
    ("half a header", rules.headers, {"model/a.py": '"""A file."""\nx = 1\n'}, "does not say"),
    ("a long package", rules.headers, {"model/__init__.py": '"""A."""\n' + "x = 1\n" * 9}, "does not say"),
    ("eval", rules.nothing_dangerous, {"model/a.py": "eval('1')\n"}, "eval"),
    ("exec", rules.nothing_dangerous, {"model/a.py": "exec('1')\n"}, "exec"),
    ("pickle", rules.nothing_dangerous, {"model/a.py": "import pickle\n"}, "pickle"),
    ("from pickle", rules.nothing_dangerous, {"model/a.py": "from pickle import loads\n"}, "pickle"),
    ("torch.load", rules.nothing_dangerous, {"model/a.py": "import torch\ntorch.load('x')\n"}, "torch.load"),
    ("shell", rules.nothing_dangerous, {"model/a.py": "subprocess.run('ls', shell=True)\n"}, "shell="),
    ("maybe a shell", rules.nothing_dangerous, {"model/a.py": "run('ls', shell=flag)\n"}, "shell="),
    ("yaml", rules.nothing_dangerous, {"model/a.py": "import yaml\nyaml.load(f)\n"}, "yaml.load"),
    ("from yaml", rules.nothing_dangerous, {"model/a.py": "from yaml import load\n"}, "yaml.load"),
    ("comment", rules.no_leftovers, {"model/a.py": "x = 1  # TODO: more\n"}, "TODO"),
    ("docstring", rules.no_leftovers, {"model/a.py": 'def f():\n    """FIXME."""\n'}, "FIXME"),
]


@pytest.mark.parametrize(("law", "files", "said"), [b[1:] for b in BREACHES], ids=[b[0] for b in BREACHES])
def test_a_breach_is_caught(tmp_path: Path, law: rules.Law, files: dict[str, str], said: str) -> None:
    broken = law(made_up(tmp_path, {**GOOD, **files}))
    assert any(said in line for line in broken), broken


def test_every_law_is_shown_to_catch_something() -> None:
    assert {breach[1] for breach in BREACHES} == set(LAWS)
