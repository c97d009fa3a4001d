"""`python -m takeback` is the command line."""

import sys

try:
    from takeback.frontends.cli.main import main

    code = main()
except KeyboardInterrupt:  # nothing was begun, or the answer was complete
    code = 130
sys.exit(code)
