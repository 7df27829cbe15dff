"""The same numbers, sooner: calls planned once, steps captured, 16-bit forms, results made again. It comes in through core/door.py."""
