"""The losses, as pure functions of tensors."""
