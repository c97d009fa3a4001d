"""Many paths changed as one: what a command left, or what was found to have changed in a watched tree."""
