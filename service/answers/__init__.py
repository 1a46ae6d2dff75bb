"""What is answered, around the estimator's own numbers: dataclasses that features fill and the client reads back."""
