"""The floor of the pipe bench: reads and drops, answers when a line feed ends a chunk. It decodes nothing.

It plays the daemon's requests in the order in which the bench sends them: initialize, processRecords…, leaseLost. It
sizes its pipe, so it is for Linux only.
"""

import fcntl
import os

CHUNK = 256 * 1024


def main() -> None:
    """One status for each line; 256 KiB of pipe and chunk, as fastkcl's reader has them."""
    fcntl.fcntl(0, fcntl.F_SETPIPE_SZ, CHUNK)
    action = "initialize"
    buffer = bytearray(CHUNK)  # read into again and again: fresh memory for each chunk would cost more than read(2)
    while size := os.readv(0, [buffer]):
        if buffer[size - 1] != 0x0A:
            continue
        if size < 64 and b"leaseLost" in buffer[:size]:
            action = "leaseLost"
        os.write(1, f'\n{{"action":"status","responseFor":"{action}"}}\n'.encode())
        action = "processRecords"


if __name__ == "__main__":
    main()
