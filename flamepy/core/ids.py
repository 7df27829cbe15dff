"""Ids of tensors: numbers, counted up. Always call ids.next_id(): a counter from above may stand here later."""

from itertools import count

next_id = count(1).__next__
