"""Where untrusted programs run: the local sandbox (bubblewrap), its fake, and a probe of this machine."""

from burnish.sandbox.fake import FakeSandbox, FakeSandboxes
from burnish.sandbox.local import LocalSandbox, LocalSandboxes
from burnish.sandbox.probe import Check, probe

__all__ = ["Check", "FakeSandbox", "FakeSandboxes", "LocalSandbox", "LocalSandboxes", "probe"]
