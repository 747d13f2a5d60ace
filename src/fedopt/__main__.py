"""`python -m fedopt`, for those whose path does not find the command."""

from __future__ import annotations

from fedopt.cli.app import main

if __name__ == "__main__":
    main()
