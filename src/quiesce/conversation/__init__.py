"""A conversation: its messages, what makes it valid, and how a torn turn is sealed."""
