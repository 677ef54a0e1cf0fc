"""What images take, by vendors' documents and then by what is counted."""

import pytest

from shepherd.backends.api.estimate import TokenEstimator, prior_for
from shepherd.backends.api.estimate.images import image_cost_for
from shepherd.images import Image
from shepherd.messages import Message
from shepherd.session import Session
from tests.pictures import picture


@pytest.mark.parametrize(
    ("model", "size", "tokens"),
    [
        ("gpt-4o", (1024, 1024), 85 + 4 * 170),
        ("gpt-4o", (2048, 4096), 85 + 6 * 170),
        ("gpt-4o", (500, 500), 85 + 170),
        ("gpt-4.1-mini", (1024, 1024), 1659),
        ("claude-sonnet-4-5", (1000, 750), 1000),
        ("claude-sonnet-4-5", (8000, 8000), 1600),
        ("gemini-2.5-pro", (384, 300), 258),
        ("gemini-2.5-pro", (960, 540), 6 * 258),
        ("gemini-3-pro-preview", (4000, 4000), 1120),
        ("gemma3:4b", (4000, 4000), 256),
    ],
)
def test_images_cost_what_vendors_say(model: str, size: tuple[int, int], tokens: int) -> None:
    assert image_cost_for(model).tokens(*size) == tokens


def test_images_count_and_are_learned() -> None:
    """Whatever a provider takes for them, some answers later it is known."""
    estimator = TokenEstimator(prior_for("gpt-4o"))
    text = Session(messages=[Message.user("What is this?")])
    shown = Session(messages=[Message.user("What is this?", (picture("a", 1024, 1024),))])
    assert estimator.estimate(shown) - estimator.estimate(text) == 765
    for number in range(12):
        side = 300 + 90 * number
        image = picture(str(number), side, side)
        seen = Session(messages=[Message.user(f"What is {number}?", (image,))])
        estimator.learn(seen, 12 + 3 * image_cost_for("gpt-4o").tokens(side, side))
    new = Session(messages=[Message.user("And this?", (picture("new", 700, 900),))])
    truth = 12 + 3 * image_cost_for("gpt-4o").tokens(700, 900)
    assert abs(estimator.estimate(new) - truth) < 0.05 * truth


def test_an_unreadable_image_counts_too() -> None:
    session = Session(messages=[Message.user("?", (Image("image/png", b""),))])
    assert TokenEstimator(prior_for("claude")).estimate(session) > 1000
