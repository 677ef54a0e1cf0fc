"""Grammars (GBNF) that define the form of an answer: pure text, without native code."""
