"""The commands of a conversation as text in and text out, for every frontend without a terminal."""
