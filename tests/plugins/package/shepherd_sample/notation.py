"""How some model writes calls: `<<call>>read<<arg>>path<<is>>a<</arg>><</call>>`."""

from shepherd.backends.output.notation import Fields, Notation

ANGLES = Notation("<<call>>", "", "<</call>>", fields=Fields("<<arg>>", "<<is>>", "<</arg>>"))
