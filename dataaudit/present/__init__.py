"""What people and other programs read of a manifest: the terminal's screen, the HTML report, exports."""
