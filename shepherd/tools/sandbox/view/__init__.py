"""The file system that a boxed command sees: mounts, tools, private files, hidden paths."""
