"""A seeded fuzz run of the game: hostile players, worlds and services, and what must hold."""
