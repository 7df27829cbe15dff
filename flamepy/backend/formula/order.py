"""Where a number belongs in a sorted row, written once for every backend."""


def before(a, b):
    """Whether a comes before b; NaN comes last."""
    return (a < b) | ((a == a) & (b != b))


def place_of(x, start, n, value, right):
    """How many of the n sorted numbers of x from `start` on are less than value; right: or equal."""
    low, high = 0, n
    while low < high:
        middle = (low + high) >> 1
        other = x[start + middle]
        if (not before(value, other)) if right else before(other, value):
            low = middle + 1
        else:
            high = middle
    return low
