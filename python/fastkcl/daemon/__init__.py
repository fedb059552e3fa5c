"""Starts the Java MultiLangDaemon and supervises it: ``fastkcl daemon`` without its command line.

    keys         the keys that a generation of the daemon knows, in any spelling
    settings     the properties as the daemon gets them
    options      properties from defaults, a file, the environment and the command line, checked
    jars         the daemon's jars: a folder, an installed amazon_kclpy, or fetched once through Maven
    command      the java command line and the environment of the daemon
    log          the daemon's log, folded to events; the state of each shard
    supervision  one daemon from start to end, its children, and the reason of its end; again if asked
    guard        ends daemon and children if the supervisor is killed

Nothing here is imported by a child.
"""
