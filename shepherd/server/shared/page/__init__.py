"""The web page of a shared session: one document without a build step or network."""
