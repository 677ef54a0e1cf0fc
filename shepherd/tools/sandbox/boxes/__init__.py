"""The boxes: bubblewrap, Landlock and sandbox-exec, and the test that finds the one that works."""
