"""What can a caller ask? One function for each question; it takes plain values and a catalogue and knows no HTTP."""
