"""Fault injection: which monitor names which fault, how long before the loss, and the receipts that say so."""
