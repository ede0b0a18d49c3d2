"""`python -m vtrans`, which torchrun needs."""

from vtrans.cli import main

if __name__ == "__main__":
    main()
