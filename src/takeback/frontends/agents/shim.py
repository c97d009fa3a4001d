"""The hook itself: `python -I -S SHIM HOST EVENT`, payload on stdin.

Python compiles the program that it is given every time, and keeps what that imports. So the work is in `relay`.
"""

import sys

if __name__ == "__main__":
    sys.path.append(__file__.rpartition("/")[0])
    try:
        from relay import main  # pyright: ignore  # beside this file; of the package nothing is known here
    except ImportError:
        sys.exit(1)  # the command line around it denies the call
    sys.exit(main(sys.argv[1:]))  # pyright: ignore
