"""How near do predictions come to what was measured? Measured rows, and the mathematics that scores a prediction."""
