"""What files inside a git directory mean: the index, refs, reflogs, objects, and git's own locks."""
