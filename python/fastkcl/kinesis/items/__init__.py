"""Items in records: a processor is an aggregator and a serializer.

    processors    both in one class
    aggregators   how many items a record holds, and how
    serializers   items to bytes and back

Rules: no I/O.
"""
