"""Grammars (GBNF) that hold an answer to a form: pure text, nothing native."""
