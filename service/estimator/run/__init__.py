"""A whole run: batch schedule, goodput, days, energy and cost."""
