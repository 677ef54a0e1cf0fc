"""What answers a question, and what does not."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shepherd.cli.approval.dialog import MARKED, PAIR_SECONDS, Dialog, lay_out
from shepherd.cli.approval.pager import Pager
from shepherd.cli.approval.question import QUIET_SECONDS, Answer, approval_question
from shepherd.messages import ToolCall
from shepherd.tools.permissions.approval import ApprovalRequest
from shepherd.tools.permissions.rules import Decision, Lifetime, Rule
from tests.examples import examples

RULE = Rule("shell", "ls *", Decision.ALLOW, "/work")
SIZE = (80, 24)


def _request(command: str = "ls") -> ApprovalRequest:
    call = ToolCall("1", "execute_command", {"command": command})
    lasting = (replace(RULE, lifetime=Lifetime.SESSION),)
    return ApprovalRequest(call, (), preview=command, session=lasting, always=(RULE,))


@dataclass
class User:
    """Somebody at a screen: typing goes to the prompt while text is in it."""

    command: str = "ls"
    now: float = 0.0
    prompt: str = ""
    sent: list[str] = field(default_factory=list[str])
    saw_end: bool = False

    def __post_init__(self) -> None:
        question = approval_question(_request(self.command))
        self.dialog = Dialog(question, lambda: self.now, unicode=True)

    def look(self, seconds: float = 0.0, size: tuple[int, int] = SIZE) -> None:
        """Time passes, then the screen is drawn; a choice is carried out when its time comes."""
        self.now += seconds
        if self.dialog.is_waiting and self.dialog.missing_seconds() <= 0:
            self.dialog.carry_out()
        frame = lay_out(self.dialog, "›", focused=not self.prompt, width=size[0], height=size[1])
        self.dialog.note_drawn(end=frame.end, legible=frame.legible)
        self.saw_end |= frame.end

    def press(self, key: str) -> None:
        """Press a key: a character, `enter`, `up` or `down`."""
        if self.prompt and key in ("up", "down"):
            self.prompt = ""  # to look at the question again; the text is beside the point
        elif self.prompt and key == "enter":
            self.sent.append(self.prompt)
            self.prompt = ""
            self.dialog.disturb()
        elif self.prompt:
            self.prompt += key
        elif key == "enter":
            self.dialog.enter()
        elif key in ("up", "down"):
            self.dialog.move(1 if key == "down" else -1)
        else:
            self.prompt += self.dialog.type(key)


def _reader() -> User:
    user = User()
    user.look()
    user.look(QUIET_SECONDS)
    return user


PAUSES = st.sampled_from([0.0, 0.05, 0.3, 0.6, 5.0])
WORDS = st.one_of(
    st.sampled_from(["stop", "actually", "any", "say no", "as", "ya", "nay", "fan", "a good idea"]),
    st.text("ysanfg GSAx12345", min_size=2).filter(
        lambda text: sum(c.lower() in "ysanf12345x" for c in text) > 1
    ),
)


@given(WORDS, st.lists(PAUSES, min_size=1), PAUSES)
def test_prose_and_enter_send_a_message_and_allow_nothing(
    prose: str, pauses: list[float], before_enter: float
) -> None:
    user = _reader()
    for at, character in enumerate(prose):
        user.look(pauses[at % len(pauses)])
        user.press(character)
    user.look(before_enter)
    user.press("enter")
    user.look(10 * QUIET_SECONDS)
    assert user.dialog.answer is None
    assert len(user.sent) == 1
    assert prose.strip(" ").endswith(user.sent[0].strip(" "))


@given(st.lists(st.sampled_from([*"ysanfgGx 15", "up", "down"]), max_size=20))
def test_no_key_but_enter_answers(keys: list[str]) -> None:
    user = _reader()
    for key in keys:
        user.press(key)
        user.look(2 * QUIET_SECONDS)
    assert user.dialog.answer is None


KEYS = st.sampled_from([*"ysanfgGx 15", "up", "down", "enter"])


@given(st.lists(st.tuples(PAUSES, KEYS), max_size=30))
def test_a_yes_has_quiet_on_both_sides_of_enter_or_before_a_pair(
    events: list[tuple[float, str]],
) -> None:
    user = User()
    user.look()
    pressed = [(0.0, ""), (0.0, "")]  # the question was shown
    for pause, key in events:
        user.look(pause)
        if user.dialog.answer is not None:
            break
        user.press(key)
        pressed.append((user.now, key))
    else:
        user.look(QUIET_SECONDS)
    if user.dialog.answer is not None and user.dialog.answer.allows:
        (marked, letter), (entered, key) = pressed[-2:]
        before = [time for time, key in pressed[:-2] if key not in ("up", "down")][-1]
        assert key == "enter"
        is_pair = letter in [*"ysa123"] and marked - before >= PAIR_SECONDS
        is_calm = entered - marked >= QUIET_SECONDS and user.now - entered >= QUIET_SECONDS
        assert is_pair or is_calm


def test_a_letter_and_enter_after_a_pause_count_at_once() -> None:
    for letter, answer in (("y", Answer.ONCE), ("1", Answer.ONCE), ("s", Answer.SESSION)):
        user = _reader()
        user.look(PAIR_SECONDS)
        user.press(letter)
        user.look(0.05)
        user.press("enter")
        assert user.dialog.answer is answer


@given(st.sampled_from("xg5 s"), st.floats(0, 0.9))
def test_a_letter_soon_after_another_key_begins_no_pair(key: str, pause: float) -> None:
    user = _reader()
    user.look(PAIR_SECONDS)
    user.press(key)
    user.look(pause)
    user.press("y")
    user.look(0.05)
    user.press("enter")
    assert user.dialog.answer is None


def test_a_pair_whose_letter_was_not_drawn_does_not_count() -> None:
    user = _reader()
    user.look(PAIR_SECONDS)
    user.press("s")
    user.press("enter")
    user.look(QUIET_SECONDS)
    assert user.dialog.answer is None


@given(st.sampled_from([*"yx 1gG", "up", "down", "enter"]), st.floats(0, 0.99))
def test_any_key_takes_a_yes_back(key: str, part: float) -> None:
    user = _reader()
    user.press("enter")
    assert user.dialog.is_waiting
    user.look(QUIET_SECONDS * part)
    user.press(key)
    user.look(10 * QUIET_SECONDS)
    assert user.dialog.answer is None
    assert "nothing was approved" in user.dialog.note


def test_enter_is_carried_out_after_the_quiet_time() -> None:
    for letter, answer in (("", Answer.ONCE), ("s", Answer.SESSION), ("a", Answer.ALWAYS)):
        user = _reader()
        if letter:
            user.press(letter)
            user.look(QUIET_SECONDS)
        user.press("enter")
        user.look(QUIET_SECONDS * 0.9)
        assert user.dialog.answer is None
        user.look(QUIET_SECONDS * 0.2)
        assert user.dialog.answer is answer


def test_a_digit_or_letter_says_that_enter_chooses() -> None:
    for key in "14n":
        user = _reader()
        user.press(key)
        assert user.dialog.note == MARKED
        assert user.dialog.answer is None
        user.press("down")
        assert user.dialog.note == ""


def test_no_is_immediate() -> None:
    for letter, answer in (("n", Answer.NO), ("f", Answer.TELL)):
        user = User()
        user.look()
        user.press(letter)
        user.press("enter")
        assert user.dialog.answer is answer


def test_a_line_is_chosen_only_when_its_rule_is_on_the_screen() -> None:
    user = _reader()
    user.press("down")
    user.press("enter")
    assert not user.dialog.is_waiting
    user.look()
    user.look(QUIET_SECONDS)
    user.press("enter")
    assert user.dialog.is_waiting


def test_nothing_is_allowed_on_a_window_that_became_too_small() -> None:
    user = _reader()
    user.look(0, (80, 3))
    user.press("enter")
    assert not user.dialog.is_waiting
    user.look(0, (15, 40))
    user.look(1, (15, 40))
    user.press("enter")
    assert not user.dialog.is_waiting
    user.look()
    user.look(1)
    user.press("enter")
    assert user.dialog.is_waiting


def test_nothing_counts_before_the_question_was_drawn() -> None:
    user = User()
    user.now = 100.0
    for key in ("enter", "y", "enter"):
        user.press(key)
    user.look(QUIET_SECONDS * 0.5)
    user.press("enter")
    user.look(2 * QUIET_SECONDS)
    assert user.dialog.answer is None
    assert user.sent == ["y"]


@settings(max_examples=examples(30))
@given(st.integers(45, 80), st.integers(20, 120), st.integers(9, 40))
def test_a_yes_waits_for_the_end_of_the_text(lines: int, width: int, height: int) -> None:
    user = User("\n".join(f"echo {n}" for n in range(lines)))
    size = (width, height)
    user.look(0, size)
    user.look(1, size)
    pressed = 0
    while not user.dialog.is_waiting:
        saw_end = user.saw_end
        user.press("enter")
        assert user.dialog.is_waiting == saw_end
        user.look(0, size)
        user.look(0.4 if user.dialog.is_waiting else 1, size)
        pressed += 1
    assert pressed > 1
    assert user.saw_end


def test_rules_that_take_many_rows_are_part_of_the_text() -> None:
    rule = Rule("shell", "x" * 3000, Decision.ALLOW, "/work", Lifetime.SESSION)
    request = ApprovalRequest(ToolCall("1", "execute_command", {}), (), "ls", session=(rule,))
    user = _reader()
    user.dialog = Dialog(approval_question(request), lambda: user.now, unicode=True)
    user.look()
    user.look(1)
    user.press("s")
    user.look(1)
    seen = user.dialog.pager
    assert seen.total > 1
    user.dialog.page(Pager.begin)
    user.look()
    user.look(1)
    while not user.dialog.is_waiting:
        user.press("enter")
        user.look(1 if not user.dialog.is_waiting else 0)
    user.look(1)
    assert user.dialog.answer is Answer.SESSION


def test_typing_leaves_the_mark_where_the_arrows_put_it() -> None:
    user = _reader()
    user.press("down")
    marked = user.dialog.marked
    user.press("x")
    assert user.prompt == "x"
    assert user.dialog.marked is marked
