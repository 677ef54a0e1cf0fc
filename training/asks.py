"""More requests for made-up tools of clients; in training only."""

from training.phrasing import fill

NONE = (
    *("{verb} the {noun} for me", "I want you to {verb} the {noun}", "use {name} now", "{name}"),
    *(
        "the {noun}: {verb} it",
        "it is time to {verb} the {noun}",
        "run the tool {name}",
        "{name}()",
    ),
    *("the {noun}, {verb} it please", "I need you to {verb} the {noun}", "let the tool {name} run"),
    *("I want to {verb} the {noun}", "{verb} our {noun}", "{verb} all of the {noun}", "do {name}"),
)
ONE = (
    *(
        "{verb} {0} in the {noun}",
        "{verb} the {noun} by {a} {0}",
        "{verb} the {0} {noun}",
        "{name} {0}",
    ),
    *("{verb} {0} {noun}", "the {noun} {0}: {verb} it", "the {noun} {0}, please {verb} it"),
    *("for {0}, {verb} the {noun}", "with {0}, {verb} the {noun}", "{a} {0}: {verb} the {noun}"),
    *(
        "{name}: {0}",
        "{name}({0})",
        "use {name}, {a} is {0}",
        "{name} with {a} {0}",
        "{name} for {0}",
    ),
    *(
        "{verb} the {noun} where the {a} is {0}",
        "{verb} the {noun}, {a} {0}",
        "{verb} the {noun} to {0}",
    ),
    *(
        "I want to {verb} the {noun} {0}",
        "I need the {noun} of {0}, {verb} it",
        "{verb} the {noun} on {0}",
    ),
    *("{verb} {noun} {a} {0}", "{verb} the {noun} from {0}", "{verb} the {noun} whose {a} is {0}"),
    *("the {a} is {0}, {verb} the {noun}", "run {name} on {0}", "{verb} a {noun} for {a} {0}"),
    *('{verb} the {noun} "{0}"', "{verb} the {noun} '{0}'", "let {name} work on {0}"),
)
TWO = (
    *(
        "{verb} the {noun} {0} with {1}",
        "{verb} the {noun} {0} to {1}",
        "{verb} {0} to {1} in the {noun}",
    ),
    *(
        "{verb} the {noun} for {0}, {b} {1}",
        "{verb} {noun} with {a} {0}, {b} {1}",
        "{name} {0} {1}",
    ),
    *("the {noun}: {verb} it with {b} {1} and {a} {0}", "{name}({0}, {1})", "{name} {0}, {1}"),
    *(
        "{verb} the {noun}, the {a} is {0} and the {b} is {1}",
        "{a} {0}, {b} {1}: {verb} the {noun}",
    ),
    *("with {a} {0} and {b} {1}, {verb} the {noun}", "{b} {1}, {a} {0}: {verb} the {noun}"),
    *("with {b} {1} and {a} {0}, please {verb} the {noun}", "{verb} {noun}, {b} {1}, {a} {0}"),
    *(
        "use {name} with {b} {1} and {a} {0}",
        "call {name}: {b} {1}, {a} {0}",
        "{name}: {a} {0}, {b} {1}",
    ),
    *("{verb} the {noun} where {a} is {0} and {b} is {1}", "{name} with {a}={0} and {b}={1}"),
    *("I want to {verb} the {noun} with {a} {0} and {b} {1}", "{name} {a}={0} {b}={1}"),
    *("{verb} the {noun} whose {a} is {0} for the {b} {1}", "{verb} the {noun} {a}: {0}, {b}: {1}"),
    *(
        '{verb} the {noun} with the {a} "{0}" and the {b} "{1}"',
        "{a}: {0}, {b}: {1}, {verb} the {noun}",
    ),
    *(
        "{verb} the {noun} with {a} '{0}' and {b} '{1}'",
        "for the {b} {1}, {verb} the {noun} {a} {0}",
    ),
)
THREE = (
    *("{verb} the {noun} with {a} {0}, {b} {1} and {c} {2}", "{name}({0}, {1}, {2})"),
    *("{verb} the {noun}, {a} {0}, {b} {1}, {c} {2}", "use {name} with {a} {0}, {b} {1}, {c} {2}"),
    *(
        "call {name}: {a} {0}, {b} {1}, {c} {2}",
        "{verb} the {noun} with {c} {2}, {a} {0} and {b} {1}",
    ),
    *("{a} {0}, {b} {1}, {c} {2}: {verb} the {noun}", "{name} {a}={0} {b}={1} {c}={2}"),
    *(
        "with {b} {1} and {c} {2}, {verb} the {noun} {a} {0}",
        "{verb} {noun}, {c} {2}, {b} {1}, {a} {0}",
    ),
    *("{verb} the {noun}: the {a} is {0}, the {b} is {1} and the {c} is {2}", "{name} {0} {1} {2}"),
)


def more_asks(name: str, verb: str, noun: str, args: list[str]) -> tuple[str, ...]:
    """Requests for the tool `name`, which does `verb` to a `noun`."""
    values = {"name": name, "verb": verb, "noun": noun, **dict(zip("abc", args, strict=False))}
    texts = (NONE, ONE, TWO, THREE)[len(args)]
    return tuple(fill(text, **values) for text in texts)
