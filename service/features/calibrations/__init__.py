"""Calibrations: constants of a device, fitted on measurements, promoted and rolled back."""
