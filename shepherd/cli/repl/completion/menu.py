"""The menu of completions: which entry is marked, and what Enter and Tab do with it."""

from prompt_toolkit.buffer import Buffer


def mark_first_command(buffer: Buffer) -> None:
    """Mark the first command of the menu, or the one that is typed whole; Enter runs it."""
    state = buffer.complete_state
    if state is None or state.complete_index is not None or not _is_command_name(buffer):
        return
    names = [completion.text for completion in state.completions]
    typed = buffer.text.removeprefix("/")
    if names not in ([], [typed]):
        state.go_to_index(names.index(typed) if typed in names else 0)


def _is_command_name(buffer: Buffer) -> bool:
    return buffer.text.startswith("/") and not any(map(str.isspace, buffer.text))


def choose_command(buffer: Buffer) -> bool:
    """Complete the marked command; False if none is marked or it is there already."""
    state = buffer.complete_state
    marked = state.current_completion if state is not None else None
    if marked is None or not _is_command_name(buffer) or buffer.text == f"/{marked.text}":
        return False
    buffer.apply_completion(marked)
    return True


def chose_file(buffer: Buffer) -> bool:
    """Whether an entry that is not a command was chosen."""
    state = buffer.complete_state
    chosen = state is not None and state.current_completion is not None
    return chosen and not buffer.text.startswith("/")
