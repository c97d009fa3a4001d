"""`python -m takeback` is the command line."""

import sys

from takeback.frontends.cli.main import main

sys.exit(main())
