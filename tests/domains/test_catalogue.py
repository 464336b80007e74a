"""The catalogue: ten domains, told apart, each with held-out templates and its outcome as first reward."""

from __future__ import annotations

from burnish.domains.catalogue import all_domains, simulated_domains
from burnish.interfaces import Domain
from burnish.sandbox.fake import FakeSandboxes


def test_ten_domains() -> None:
    domains = all_domains(FakeSandboxes())
    assert len({d.name for d in domains}) == len({d.title for d in domains}) == 10
    assert {d.name for d in simulated_domains()} < {d.name for d in domains}
    for domain in domains:
        assert isinstance(domain, Domain)
        assert domain.rewards[0].name == "outcome"
        train, heldout = domain.tasks("train", 0, 12), domain.tasks("heldout", 0, 12)
        assert {t.domain for t in (*train, *heldout)} == {domain.name}
        shared = {t.tags["template"] for t in train} & {t.tags["template"] for t in heldout}
        assert shared == set() and all(t.tools and t.budget.tool_calls for t in (*train, *heldout))
