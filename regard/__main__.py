"""`python -m regard`, which is also how torchrun starts it."""

from regard.cli import main

if __name__ == "__main__":
    main()
