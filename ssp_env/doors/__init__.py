"""Doors to the game beside the PettingZoo env: one role at a time, many games at once, whole turns,
text."""
