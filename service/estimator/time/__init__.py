"""Seconds of one step, part by part."""
