"""What lies over a store while a sandboxed command runs, so that the command can neither read nor change it."""

NAME = "takeback-cover"  # as /proc/self/mountinfo tells it inside
