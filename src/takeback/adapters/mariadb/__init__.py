"""MariaDB and MySQL: row triggers that log, a marker in the same transaction, and undo by comparing rows."""
