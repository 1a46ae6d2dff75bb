"""What does each kind of layer do? One file a kind, each returning its operations for one sequence."""
