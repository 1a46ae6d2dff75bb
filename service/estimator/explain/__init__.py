"""Explanations of the numbers of an answer, each computed again from its inputs."""
