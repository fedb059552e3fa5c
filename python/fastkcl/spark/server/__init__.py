"""The Spark that is written to: sessions, the servers that they are on, and Java for those.

    session     the session that is written to: a given one, or opened, and opened again when its server was restarted
    connect     opens sessions on a Connect server, with an end to every wait
    shared      one Connect server for all children of a host; keeper is the process that has it
    local       Spark in a JVM of this process; in_process has one for all of its processors
    settings    the settings that these share
    jdk         the Java for a JVM, from the machine or from PyPI

A writer asks for a session, and does not see which server it is on.
"""
