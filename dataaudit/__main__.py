"""``python -m dataaudit`` is ``dataaudit``."""

from dataaudit.cli import main

if __name__ == "__main__":
    main()
