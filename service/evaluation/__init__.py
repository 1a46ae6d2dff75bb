"""How near does the estimator come to what others measured? A table of measurements, asked row by row."""
