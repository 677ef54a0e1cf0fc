"""Scenes without tools: small talk, facts told before, and everything beyond Pup."""

import re

from training import answers, clients, lists
from training.dialogue import Scene
from training.phrasing import fill, load

TALK = load(
    "talk", frozenset({"greeting", "thanks", "bye", "mutter", "tell", "tell_name", "foreign"})
)
SMALL_TALK = {
    "greeting": (answers.GREETING, 3),
    "identity": (answers.IDENTITY, 3),
    "help": (answers.HELP, 3),
    "bigger": (answers.BIGGER, 2),
    "shepherd": (answers.SHEPHERD, 1),
    "leave": (answers.LEAVE, 1),
    "thanks": (answers.THANKS, 2),
    "bye": (answers.BYE, 1),
    "mutter": (answers.WHAT, 1),
}
UNOFFERED = 0.2  # share of the requests beyond Pup, in training, that a client's tool could do
COMMON = {"what", "how", "who", "is", "set", "me", "the", "word", "of", "people", "event"}


def outside_text(s: Scene) -> str:
    """A request beyond Pup."""
    rng, words = s.rng, s.words
    kind = rng.random()
    if kind < 0.05:
        return words.soup() if kind < 0.02 else words.words(1, 5)
    if kind < 0.08:
        return "\n".join(words.lines(rng.randint(2, 8)))
    text = TALK["foreign" if kind < 0.14 else "outside"].pick(rng, held=s.held)
    while "{t}" in text:
        topic = words.word() if rng.random() < 0.7 else words.words(2, 2)
        text = text.replace("{t}", topic.capitalize() if rng.random() < 0.15 else topic, 1)
    return fill(
        text,
        n=str(rng.randint(2, 999)),
        m=str(rng.randint(2, 99)),
        y=str(rng.randint(1500, 2030)),
        f=words.path(),
        q=f"'{words.words(1, 5)}'",
    )


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+|[+*]", text.lower()))


def offered_topics(s: Scene) -> set[str]:
    """The words that the clients' tools on offer are asked for with, common ones left out."""
    topics = set(lists.words("client topics"))
    if not s.held:
        topics.update(lists.words("client topics train"))
    asked: set[str] = set()
    for tool in s.tools:
        if not tool.kind:
            asked.update(*(_words(ask) for ask in (tool.name.replace("_", " "), *tool.asks)))
    return asked & topics - COMMON


def beyond(s: Scene) -> None:
    """A request beyond Pup and its honest answer."""
    text = ""
    if not s.held and s.rng.random() < UNOFFERED:
        text = clients.unoffered(s)
    text = text or outside_text(s)
    if _words(text) & offered_topics(s):
        return  # an offered tool may be meant
    s.user(text)
    s.say(answers.BEYOND, "That is beyond a tiny model. I say so.", "beyond")


def chat(s: Scene) -> None:
    """Greetings, thanks, questions about Pup and Shepherd."""
    rng = s.rng
    intent = rng.choices(list(SMALL_TALK), [weight for _, weight in SMALL_TALK.values()])[0]
    answer = SMALL_TALK[intent][0]
    s.user(TALK[intent].pick(rng, held=s.held))
    s.say(answer, "This is about me or small talk. I answer it.", "small talk")


def where(s: Scene) -> None:
    """The working directory, where the system message names it."""
    if s.folder:
        s.user(TALK["where"].pick(s.rng, held=s.held))
        s.say(f"The working directory is {s.folder}", "The system message says it.", "where")


def tell(s: Scene) -> None:
    """The user tells a fact."""
    rng, words = s.rng, s.words
    key = rng.choice(lists.sections("texts")["facts"]) if rng.random() < 0.75 else words.words(1, 2)
    if rng.random() < 0.4:
        key = "name"
    value = words.word().capitalize() if rng.random() < 0.6 else words.name()
    if key != "name" and rng.random() < 0.3:
        value = rng.choice([words.words(2, 3), f"{words.word()} {rng.randint(1, 31)}"])
    s.facts[key] = value
    named = key == "name" and rng.random() < 0.85
    s.user(fill(TALK["tell_name" if named else "tell"].pick(rng, held=s.held), k=key, v=value))
    answer = f"Nice to meet you, {value}." if key == "name" else f"Your {key} is {value}. Noted."
    s.say(answer, "The user tells me something. I note it.", "told")


def ask(s: Scene) -> None:
    """The user asks for a fact told before, or never told."""
    rng = s.rng
    if not s.facts and rng.random() < 0.7:
        tell(s)
    key = (
        rng.choice(list(s.facts))
        if s.facts and rng.random() < 0.85
        else rng.choice(lists.sections("texts")["facts"])
    )
    named = key == "name" and rng.random() < 0.85
    s.user(fill(TALK["ask_name" if named else "ask"].pick(rng, held=s.held), k=key))
    if key in s.facts:
        s.say(f"Your {key} is {s.facts[key]}.", "The user told me before.", "remembered")
    else:
        s.say(f"You have not told me your {key}.", "The user has not told me.", "never told")
