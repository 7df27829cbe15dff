"""Ids of tensors: numbers, counted up. A file of its own, for the counter is another one after a tensor came with a higher id from
another process: so always call ids.next_id()."""

from itertools import count

next_id = count(1).__next__


def go_on_beyond(number: int) -> int:
    """Count from number + 1 on; returns the number that would have been next."""
    global next_id
    before, next_id = next_id, count(number + 1).__next__
    return before()
