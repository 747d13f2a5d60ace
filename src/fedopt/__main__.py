"""`python -m fedopt` is the same as the command `fedopt`."""

from __future__ import annotations

from fedopt.cli.app import main

if __name__ == "__main__":
    main()
