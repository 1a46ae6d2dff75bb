"""What was measured? Measurements come in, are doubted, listed and handed on."""
