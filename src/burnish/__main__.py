"""`python -m burnish`, and the entry of the installed command.

What this file is: the one place before everything else is imported, so that Ctrl-C is answered in a line even then.
What it is not: the command line; that is `cli`.
"""

from __future__ import annotations

import sys


def main() -> int:
    """Runs the command line; returns its exit code."""
    try:
        from burnish import cli
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
