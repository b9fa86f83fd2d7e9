"""Doors to the game: PettingZoo's AEC, one role, vectors, batches of turns, text, RLlib, replay."""
