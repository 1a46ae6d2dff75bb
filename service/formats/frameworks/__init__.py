"""One file for each training framework that a question can be written for, with the rules of its fields."""
