"""Redis and Valkey: keys, captured by DUMP before a command and compared by content before they are put back."""
