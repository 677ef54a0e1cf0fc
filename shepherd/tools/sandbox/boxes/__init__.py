"""The boxes: bubblewrap, Landlock, sandbox-exec, and finding the one that holds here."""
