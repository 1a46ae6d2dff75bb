"""Computation beside the event loop: compute processes, and the queue of writers."""
