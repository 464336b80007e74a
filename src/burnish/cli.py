"""The command line: names, options, help, and how every failure is told.

What this file is: one thin function for each command, which imports what it needs when it runs, so that
`--help` answers at once; and `main`, the boundary at which an exception becomes a message and an exit code.
What it is not: what commands do; that is `commands`.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from burnish import __version__
from burnish.types import BurnishError

app = typer.Typer(
    name="burnish",
    help="Post-train an open-weights language model into an agent, prove what changed, and serve it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
domains = typer.Typer(help="The kinds of work that agents are trained and measured on.", no_args_is_help=True)
sandbox = typer.Typer(help="The isolation that everything a model writes runs in.", no_args_is_help=True)
log = typer.Typer(help="The audit log of a run or a server.", no_args_is_help=True)
app.add_typer(domains, name="domains")
app.add_typer(sandbox, name="sandbox")
app.add_typer(log, name="log")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")]
Model = Annotated[
    str, typer.Argument(help="A run, a checkpoint or other Hugging Face directory, or a GGUF file.")
]
Seed = Annotated[int, typer.Option(help="Fixes all draws.")]
Split = Annotated[str, typer.Option(help="heldout or train.")]
Context = Annotated[int, typer.Option(help="Tokens of a conversation, the answers included.")]
Run = Annotated[Path, typer.Argument(help="The run's directory.")]
Access = Annotated[
    str | None,
    typer.Option(help="What may be reached: offline, build, open-web, or a policy's file (.toml)."),
]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"burnish {__version__}")
        raise typer.Exit


@app.callback()
def burnish(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def doctor(
    json: Json = False, quiet: Annotated[bool, typer.Option(help="Print only what is wrong.")] = False
) -> None:
    """Look at what this machine can do, and say what to type for the rest."""
    from burnish.commands.machine import doctor

    raise typer.Exit(doctor(json, quiet))


@app.command()
def train(
    recipe: Annotated[
        str, typer.Argument(help="A recipe's name, such as quickstart, or a path to your own.")
    ],
    fields: Annotated[
        list[str] | None, typer.Argument(metavar="[FIELD=VALUE]...", help="As in algorithm.clip_high=0.3")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="Where; runs/RECIPE if not given.")] = None,
    json: Json = False,
) -> None:
    """Train by a recipe, in a new run directory."""
    from burnish.commands.training import train

    train(recipe, fields or [], run, json)


@app.command()
def resume(run: Run, json: Json = False) -> None:
    """Go on with a run that was stopped or killed, to the numbers that it would have had."""
    from burnish.commands.training import resume

    resume(run, json)


@app.command()
def report(run: Run, json: Json = False) -> None:
    """Make a run's report.html and summary.json again."""
    from burnish.commands.training import report

    report(run, json)


@app.command("eval")
def evaluate(
    model: Model,
    per_domain: Annotated[int, typer.Option(help="Tasks of each domain.")] = 20,
    domains: Annotated[str, typer.Option(help="Names with commas between; all if not given.")] = "",
    split: Split = "heldout",
    seed: Seed = 7,
    out: Annotated[Path | None, typer.Option(help="Keep the episodes in this file (.jsonl).")] = None,
    report: Annotated[Path | None, typer.Option(help="Make a page (.html).")] = None,
    json: Json = False,
) -> None:
    """Measure a model on held-out tasks: success with intervals, steps, failures and timeouts."""
    from burnish.commands.evaluation import evaluate, plan

    evaluate(model, plan(per_domain, domains, split, seed), out, report, json)


@app.command()
def compare(
    first: Annotated[str, typer.Argument(help="Episodes (.jsonl), RUN:STAGE, or a model, evaluated first.")],
    second: Annotated[str, typer.Argument(help="The one that may be better or worse.")],
    margin: Annotated[float, typer.Option(help="The loss of success that is not to be missed.")] = 0.03,
    alpha: Annotated[float, typer.Option(help="The chance of a wrong verdict that is accepted.")] = 0.05,
    per_domain: Annotated[int, typer.Option(help="Tasks of each domain, where both are models.")] = 20,
    domains: Annotated[str, typer.Option(help="Names with commas between, where both are models.")] = "",
    seed: Seed = 7,
    json: Json = False,
) -> None:
    """Is SECOND better or worse than FIRST, on the same tasks? Exit 0: pass, 1: regression, 3: not enough
    evidence."""
    from burnish.commands.evaluation import compare_sides, plan

    what = plan(per_domain, domains, "heldout", seed)
    raise typer.Exit(compare_sides(first, second, what, margin, alpha, json))


@app.command()
def chat(
    model: Model,
    system: Annotated[str, typer.Option(help="A system message.")] = "",
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.7,
    max_tokens: Annotated[int, typer.Option(help="The longest answer.")] = 512,
    seed: Seed = 0,
    context: Context = 4096,
    json: Json = False,
) -> None:
    """Talk with a model; or answer one message from a pipe."""
    from burnish.commands.conversation import chat

    chat(model, system, temperature, max_tokens, seed, context, json)


@app.command()
def agent(
    model: Model,
    task: Annotated[str, typer.Argument(help="What to do, in words.")],
    workdir: Annotated[Path, typer.Option(help="The directory that the agent gets a copy of.")],
    turns: Annotated[int, typer.Option(help="The most steps.")] = 20,
    turn_tokens: Annotated[int, typer.Option(help="The longest step.")] = 512,
    context: Context = 4096,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    seed: Seed = 0,
    apply: Annotated[bool, typer.Option("--apply", help="Write the changes back, after a question.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Write them back without the question.")] = False,
    out: Annotated[Path | None, typer.Option(help="Keep the changed copy in this directory.")] = None,
    log: Annotated[Path | None, typer.Option(help="The audit log's file.")] = None,
    policy: Access = None,
    json: Json = False,
) -> None:
    """Let a model work on a copy of a directory, in a sandbox; show its steps and what it changed."""
    from burnish.commands.agent import Request, agent

    request = Request(
        task, workdir, turns, turn_tokens, context, temperature, seed, apply or yes, yes, out, log, policy
    )
    raise typer.Exit(agent(model, request, json))


@app.command()
def serve(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="As for eval; NAME=MODEL renames.")],
    host: Annotated[str, typer.Option(help="0.0.0.0 listens to everybody; nobody is asked who they are.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8000,
    context: Context = 2048,
    slots: Annotated[int, typer.Option(help="Answers that are generated at once, for each model.")] = 16,
    log: Annotated[Path | None, typer.Option(help="The audit log's file.")] = None,
    json: Json = False,
) -> None:
    """Serve models over OpenAI's chat API, until Ctrl-C."""
    from burnish.commands.serving import serve_models

    serve_models(models, host, port, context, slots, log, json)


@domains.command("list")
def list_domains(json: Json = False) -> None:
    """Every domain, what it is about, and its tools."""
    from burnish.commands.domains import list_domains

    list_domains(json)


@domains.command("show")
def show_domain(
    name: Annotated[str, typer.Argument(help="The domain.")],
    split: Split = "train",
    seed: Seed = 0,
    count: Annotated[int, typer.Option(help="How many tasks.")] = 1,
    json: Json = False,
) -> None:
    """Tasks of a domain, as an agent is given them."""
    from burnish.commands.domains import show_domain

    show_domain(name, split, seed, count, json)


@domains.command("check")
def check_domains(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="All if not given.")] = None,
    count: Annotated[int, typer.Option(help="Tasks of each split.")] = 8,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Check that oracles succeed, that nothing cheap does, and that splits share nothing. Exit 1 if not."""
    from burnish.commands.domains import check_domains

    raise typer.Exit(check_domains(names or [], count, seed, json))


@sandbox.command("run", context_settings={"ignore_unknown_options": True})
def run_in_sandbox(
    command: Annotated[list[str] | None, typer.Argument(metavar="-- COMMAND...")] = None,
    wall: Annotated[float, typer.Option(help="Seconds.")] = 10.0,
    memory: Annotated[int, typer.Option(help="MiB.")] = 512,
    stdin: Annotated[bool, typer.Option("--stdin", help="Pass standard input on.")] = False,
    policy: Access = None,
    json: Json = False,
) -> None:
    """Run a command in an empty sandbox; print its output, how it ended, and what it used."""
    from burnish.commands.sandboxes import sandbox_run

    raise typer.Exit(sandbox_run(command or [], wall, memory, stdin, policy, json))


@sandbox.command("abuse")
def abuse_sandbox(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Cases with this in their name; all if none."),
    ] = None,
    json: Json = False,
) -> None:
    """Try everything that hostile programs are known to try, and say what stopped it. Exit 1 if one escaped."""
    from burnish.commands.sandboxes import run_abuse

    raise typer.Exit(run_abuse(names or [], json))


@log.command("verify")
def verify_log(
    run: Annotated[Path, typer.Argument(help="A run, or an audit log's file or directory.")],
    json: Json = False,
) -> None:
    """Find an edited, removed or reordered line, and a cut tail. Exit 1 where there is one."""
    from burnish.commands.machine import verify_log

    raise typer.Exit(verify_log(run, json))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code. Everything that a user can act on is one message on standard
    error; anything else is a bug, and says so (with a traceback where BURNISH_DEBUG is set)."""
    debugging = os.environ.get("BURNISH_DEBUG", "") not in ("", "0")
    try:
        with warnings.catch_warnings():
            if not debugging and not sys.warnoptions:
                warnings.simplefilter("ignore")
            typer.main.get_command(app)(args=arguments, prog_name="burnish")
        return 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        return _fail("stopped", code) if code == 130 else code
    except KeyboardInterrupt:
        return _fail("stopped", 130)
    except BaseException as error:
        if debugging:
            traceback.print_exc()
        return _told(error)


def _told(error: BaseException) -> int:
    for cause in _causes(error):
        if isinstance(cause, BurnishError):
            return _fail(str(cause), cause.exit_code)
        if isinstance(cause, KeyboardInterrupt):
            return _fail("stopped", 130)
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            where = f" ({cause.filename})" if cause.filename else ""
            return _fail(f"the disk is full{where}; make room and try again. A run: burnish resume RUN", 1)
        if isinstance(cause, MemoryError):
            return _fail("there is not enough memory; end other programs, or use a smaller context", 1)
    first = next(iter(_causes(error)))
    said = f"{type(first).__name__}: {first}".splitlines()[0]
    return _fail(
        f"this is a bug in Burnish: {said}. Please report it in the project's issue tracker, with what the same "
        "command prints under BURNISH_DEBUG=1.",
        1,
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exceptions of a group, which concurrent episodes raise, or the one itself."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _causes(part)
    else:
        yield error


def _fail(message: str, code: int) -> int:
    print(message if code == 130 else f"burnish: {message}", file=sys.stderr)
    return code
