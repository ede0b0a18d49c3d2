"""The loss, the optimizers, and the gradients of several processes: the parts that every update uses."""
