"""Access: keys, tokens, share links, and the record of changes."""
