"""Questions: a family that the tests add to the program, in one folder and one line of the registry."""
