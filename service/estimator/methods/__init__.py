"""What would other tools say of the same question, and why do they differ from ours? One file a tool."""
