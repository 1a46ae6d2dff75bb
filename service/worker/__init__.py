"""The worker, which runs where the hardware is: it claims jobs and measures in child processes; it never predicts."""
