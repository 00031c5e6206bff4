"""What is measured: a folder for each family of metrics, and the registry that lists them."""
