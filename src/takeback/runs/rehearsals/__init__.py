"""Try ways back on a copy of the world."""
