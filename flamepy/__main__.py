"""`python -m flamepy` is the `flamepy` command."""

from .cli import main

if __name__ == "__main__":
    main()
