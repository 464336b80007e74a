"""The list of domains.

What this file is: the ten domains, in the order in which they are reported.
What it is not: it is no registry. A recipe that wants another domain imports it and adds it to this list.
"""

from __future__ import annotations

from burnish.domains.absent import Absent
from burnish.domains.database import Database
from burnish.domains.faults import Faults
from burnish.domains.files import FilesDomain
from burnish.domains.iterate import IterateDomain
from burnish.domains.pages import Pages
from burnish.domains.privacy import Privacy
from burnish.domains.repair import RepairDomain
from burnish.domains.terminal import TerminalDomain
from burnish.domains.transform import TransformDomain
from burnish.domains.workspace import Sandboxes
from burnish.interfaces import Domain


def simulated_domains() -> list[Domain]:
    """The five domains whose worlds run in this process and need no sandbox."""
    return [Database(), Pages(), Faults(), Privacy(), Absent()]


def all_domains(sandboxes: Sandboxes) -> list[Domain]:
    """All ten. `sandboxes` makes the workspaces of those five that run commands."""
    return [
        FilesDomain(sandboxes),
        TransformDomain(sandboxes),
        RepairDomain(sandboxes),
        *simulated_domains(),
        TerminalDomain(sandboxes),
        IterateDomain(sandboxes),
    ]
