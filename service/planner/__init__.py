"""Which layout is best, which is the largest or cheapest that will do? Questions asked over many layouts."""
