"""What lies over a store while a sandboxed command runs, so that the command can neither read nor change it."""

NAME = "takeback-cover"  # as /proc/self/mountinfo tells it inside
TRY = ".takeback-try"  # in a store, while it is tried whether there can be a sandbox
PROBED = "sandbox.json"  # in a store: what such a trial showed
