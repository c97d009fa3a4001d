"""Files and directories: `FileAdapter` in adapter.py, the changes it knows in changes.py."""
