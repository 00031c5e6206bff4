"""What people read of a training run: answers on the terminal, the page of a run, the picture of its loss."""
