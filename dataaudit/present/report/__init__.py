"""What people read: tables in the terminal, made from a manifest and nothing else."""
