"""What the providers share: HTTP, server-sent events, errors, conversion of messages."""
