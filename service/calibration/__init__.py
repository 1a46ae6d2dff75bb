"""Calibration: measured rows, fits of constants to them, and scores of predictions."""
