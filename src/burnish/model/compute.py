"""The one thread in which torch computes.

What this file is: a single worker thread that engine and learner share. OpenMP keeps a team of threads for every
thread that calls it; two teams on as many cores make it put idle threads to sleep after each operator, and both
engine and learner run at half their speed. So one thread has the team, and the others keep to themselves.
What it is not: a scheduler. Work runs in the order in which it is submitted.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import ParamSpec, TypeVar

import torch

from burnish.model.memory import keep_freed_memory

Arguments = ParamSpec("Arguments")
Outcome = TypeVar("Outcome")


@cache
def compute_thread() -> ThreadPoolExecutor:
    """The executor. The caller's own torch operators run single-threaded from then on. It must be made before
    torch has computed anything on several threads: loading a model or opening an engine makes it."""
    keep_freed_memory()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    executor = ThreadPoolExecutor(1, "compute", initializer=torch.set_num_threads, initargs=(threads,))
    executor.submit(int).result()  # the thread, and with it the setting, exists from here on
    return executor


def computed(
    function: Callable[Arguments, Outcome], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Outcome:
    """Runs `function` in the compute thread and waits for it."""
    return compute_thread().submit(function, *args, **kwargs).result()
