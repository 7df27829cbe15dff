"""`python -m flamepy` is the `flamepy` command. Read next: cli.py."""

from .cli import main

if __name__ == "__main__":
    main()
