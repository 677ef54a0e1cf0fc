"""The small program that becomes a boxed command: started ahead, joined to its groups."""
