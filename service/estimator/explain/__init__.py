"""The formula, inputs and source behind each number of an answer."""
