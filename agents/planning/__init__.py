"""What a run will need of its devices, known before it starts."""
