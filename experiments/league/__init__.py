"""A league: proposers and solvers of different steps, or of different runs, play each other."""
