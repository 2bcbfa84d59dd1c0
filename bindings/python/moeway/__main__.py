"""`python -m moeway`: the command line of the package. docs/command-line.md has its commands."""

from __future__ import annotations

import os
import pathlib
import sys
from typing import List

from moeway._library import PACKAGE, library_path


def _candidates() -> List[pathlib.Path]:
    # In a wheel beside the package's files; in a build folder beside the library.
    return [PACKAGE / "bin" / "moeway", library_path().parent / "cli" / "moeway"]


def main() -> None:
    """Becomes the program `moeway`, with this process's arguments."""
    for program in _candidates():
        if program.is_file():
            os.execv(program, ["moeway", *sys.argv[1:]])
    sys.exit(f"moeway: this package has no command line: {' and '.join(map(str, _candidates()))} are missing")


if __name__ == "__main__":
    main()
