"""What does a minute of measuring say of a job before it starts? Question to tasks, and records to a verdict."""
