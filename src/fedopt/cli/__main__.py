"""`python -m fedopt.cli` is the command `fedopt`."""

from fedopt.cli.app import main

if __name__ == "__main__":
    main()
