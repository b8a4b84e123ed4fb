"""Tasks: one budget, one deadline, one undo and one receipt over all runs that follow from a prompt."""
