"""How does the service learn from measurements? Calibrations: fitted, judged, promoted, rolled back, watched."""
