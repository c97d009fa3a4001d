"""`python -m takeback` is the command line."""

import sys

try:
    from takeback.frontends.cli.main import main
except KeyboardInterrupt:  # nothing was begun
    sys.exit(130)

sys.exit(main())
