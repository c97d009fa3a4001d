"""Where the user's own files are."""

import os


def home() -> str:
    """Empty if nobody knows: in containers often neither HOME nor an account is there. An empty HOME names nothing."""
    if given := os.environ.get("HOME"):
        return given
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""
