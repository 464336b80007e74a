"""Serving on a port until told to stop.

What this file is: `serve`, which binds the port first (so that a taken one is a plain message), runs uvicorn
in the caller's event loop, where the engines live, and on SIGTERM or Ctrl-C finishes what is being answered.
What it is not: it loads no models, and closes none: the caller does both around it.
"""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

import uvicorn

from burnish.observe.audit import Audit
from burnish.observe.metrics import Metrics
from burnish.serve.app import ServerLimits, Service, create_app
from burnish.serve.chat import ServedModel
from burnish.types import UsageError

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_ADVICE = {
    errno.EADDRINUSE: "Another program has this port: give another one, or 0 for any that is free.",
    errno.EACCES: "Ports below 1024 are for administrators: give a higher one.",
    errno.EADDRNOTAVAIL: "This machine has no such address: give 127.0.0.1, or 0.0.0.0 for all of its own.",
}


class HttpServer(uvicorn.Server):
    """uvicorn, except that a signal drains at once, and that after a graceful stop `serve` returns to its
    caller, who has engines and a log to close. (uvicorn would raise the signal again and end the process.)"""

    def __init__(self, config: uvicorn.Config, service: Service, url: str) -> None:
        super().__init__(config)
        self.service = service
        self.url = url

    def stop(self) -> None:
        """Begins the graceful end. To be called in the server's event loop."""
        self.service.drain()
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # The second signal is from someone who does not want to wait.
        self.force_exit = self.should_exit
        self.stop()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {sig: signal.signal(sig, self.handle_exit) for sig in _SIGNALS}
        try:
            yield
        finally:
            for sig, handler in before.items():
                signal.signal(sig, handler)


async def serve(
    models: Mapping[str, ServedModel],
    audit: Audit,
    host: str = "127.0.0.1",
    port: int = 8000,
    metrics: Metrics | None = None,
    limits: ServerLimits | None = None,
    seed: int = 0,
    keeps_content: bool = False,
    grace_seconds: int = 60,
    ready: Callable[[HttpServer], None] | None = None,
) -> None:
    """Serves `models` until SIGTERM, SIGINT or `stop`, and returns when the requests in flight are answered
    or `grace_seconds` have passed. Port 0 takes a free one. `ready` is called with the server as soon as
    connections are accepted. Raises UsageError when the address cannot be used."""
    app = create_app(models, audit, metrics, limits, seed, keeps_content)
    listener = _listen(host, port)
    config = uvicorn.Config(
        app,
        log_config=None,
        # What fails is logged where it failed, and its client is answered; uvicorn would add tracebacks of
        # requests that were cancelled on purpose.
        log_level="critical",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=grace_seconds,
        lifespan="off",
    )
    server = HttpServer(config, app.state.service, _url(listener))
    if ready is not None:
        ready(server)
    try:
        await server.serve(sockets=[listener])
    finally:
        listener.close()
        await _cancel(server.server_state.tasks)


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Ends what did not finish in time, and waits until it has let go of its engine and log."""
    left = list(tasks)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket: from here on the system accepts connections, and the server takes them up."""
    if not 0 <= port < 65536:
        raise UsageError(f"Cannot listen on port {port}: ports go from 0 (a free one) to 65535.")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"Cannot listen on '{host}': {error}. Give a host such as 127.0.0.1.") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        advice = _ADVICE.get(error.errno or 0, "Give another host or port.")
        raise UsageError(f"Cannot listen on {host}:{port}: {error.strerror}. {advice}") from None
    listener.setblocking(False)
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
