"""`python -m flamepy` is the `flamepy` command."""

from .command.cli import main

if __name__ == "__main__":
    main()
