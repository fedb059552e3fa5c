r"""First stage: a page of orders for each empty message. `printf '\n' | python extract.py -m s` shows one."""

import itertools
import sys
from collections.abc import Iterator

from fastkcl import dkb

PAGE = 500
numbers = itertools.count()


@dkb.processor(extract=True)
def extract(trigger: None) -> Iterator[dict[str, object]]:
    """Orders, a page a trigger."""
    for number in itertools.islice(numbers, PAGE):
        yield {"order": number, "country": ("de", "fr", "it")[number % 3], "cents": 100 + number}


if __name__ == "__main__":
    sys.exit(extract.run())
