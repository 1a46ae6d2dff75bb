"""What runs where the hardware is: takes jobs from a service, measures in child processes, and never predicts."""
