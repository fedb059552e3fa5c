"""Second stage: adds the tax. `-b 100` takes batches of 100; the output is the same."""

import sys
from typing import Any

from fastkcl import dkb

PERCENT = {"de": 19, "fr": 20, "it": 22}


class Transform(dkb.ProcessorStage):
    """Adds the tax to each order."""

    def process(self, request: dkb.Message | list[dkb.Message]) -> bool:
        """One order, or a batch of them."""
        for message in request if isinstance(request, list) else [request]:
            order: dict[str, Any] = message.content()
            percent = PERCENT.get(order["country"])
            if percent is None:
                self.log(f"order {order['order']}: no tax known for {order['country']}", "WARN")
                message.incomplete(True)
            else:
                order["tax"] = order["cents"] * percent // 100
            self.output(message)
        return True


if __name__ == "__main__":
    sys.exit(Transform().run())
