"""What does a profile of training amount to? Read out of its trace, so that whoever opens the trace finds the same."""
