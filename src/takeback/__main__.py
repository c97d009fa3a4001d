"""`python -m takeback` is the command line."""

import sys

try:
    from takeback.frontends.cli.main import main

    code = main()
except KeyboardInterrupt:  # nothing had begun, or all of it was said
    code = 130
sys.exit(code)
