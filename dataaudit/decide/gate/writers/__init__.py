"""What people and programs read of a verdict: JUnit, SARIF, GitHub's annotations, Markdown; pure, and files."""
