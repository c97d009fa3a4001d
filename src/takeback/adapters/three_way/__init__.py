"""Take one change out of a text or a document and leave every later change in."""
