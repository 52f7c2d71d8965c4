"""`python -m argosy` is the command line."""

from argosy.cli.main import main

if __name__ == "__main__":
    main()
