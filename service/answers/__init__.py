"""What is answered, around the estimator's own numbers: dataclasses that workflows fill and the client reads back."""
