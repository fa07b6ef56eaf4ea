#!/usr/bin/env python3
"""Strangers at the doors of a job: who listens, what is said there, and how it must end.

usage: strangers.py server PORT SECRET_HEX FENCED_ID ROUND   the data port of server 0
       strangers.py agent SOCKET
       strangers.py control SOCKET
       strangers.py closed PORT...                           nobody may listen there
SECRET_HEX is the job's, FENCED_ID a worker that was a member. Prints how many of each kind it was:
"refused N dropped N fenced N", at least.
"""
import hashlib
import hmac
import os
import select
import socket
import struct
import sys
import time

FLOOD = 300
GARBAGE = os.urandom(1 << 20)


def text(data):
    return struct.pack("<I", len(data)) + data


def frame(kind, body):
    return struct.pack("<IH", len(body) + 2, kind) + body


def door(where):
    link = socket.socket(socket.AF_INET if isinstance(where, tuple) else socket.AF_UNIX)
    link.settimeout(20)
    link.connect(where)
    return link


def exactly(link, n):
    data = b""
    while len(data) < n:
        more = link.recv(n - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def is_closed(link):
    """Whether the other side closes the connection within 20 s, whatever it sends before."""
    try:
        while link.recv(65536):
            pass
        return True
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def says(where, data):
    """A stranger that sends `data`: its connection must be closed."""
    link = door(where)
    try:
        link.sendall(data)
    except ConnectionError:
        return  # shut out already
    if not is_closed(link):
        sys.exit(f"{where} goes on listening to {data[:20]!r}")


def scans(where, n=10):
    for _ in range(n):
        door(where).close()


def flood(where, limit):
    """Sends nothing on FLOOD connections. Those beyond the limit are closed at once."""
    links = []
    for _ in range(FLOOD):
        try:
            links.append(door(where))
        except OSError:
            break
        time.sleep(0.001)  # how long between two connections, not a wait
    poller, too_many = select.poll(), len(links) - limit
    for link in links:
        poller.register(link, select.POLLRDHUP)
    closed = 0
    while closed < too_many:
        ended = poller.poll(20_000)
        if not ended:
            sys.exit(f"{where} keeps more than {limit} connections that say nothing")
        for descriptor, _ in ended:
            poller.unregister(descriptor)
        closed += len(ended)
    return links, too_many


def server(port, secret, fenced, round_number):
    where = ("127.0.0.1", int(port))
    secret, fenced = bytes.fromhex(secret), int(fenced)
    huge = b"\xff\xff\xff\xff\xc9\x00"
    scans(where)
    says(where, GARBAGE)
    says(where, b"GET / HTTP/1.1\r\n\r\n")
    says(where, huge)
    says(where, frame(201, b""))
    refused = 14

    def proof(challenge, loop, key=secret):
        nonce = os.urandom(32)
        server_nonce = challenge[8 + 4:]
        said = (text(b"dtlaunch data plane") + challenge[6:8] + text(b"client") + text(server_nonce) + text(nonce) +
                struct.pack("<IIIBB", 0, fenced, loop, 0, 0))
        mac = hmac.new(key, said, hashlib.sha256).digest()
        return frame(201, struct.pack("<IIIBB", 0, fenced, loop, 0, 0) + text(nonce) + text(mac))

    def challenged():
        link = door(where)
        head = exactly(link, 4)
        return link, head + exactly(link, struct.unpack("<I", head)[0])

    link, challenge = challenged()
    link.sendall(proof(challenge, 0, b"x" * 32))
    if not is_closed(link):
        sys.exit("a proof with another job's secret is good enough")
    refused += 1

    def authenticated(loop):
        link, challenge = challenged()
        said = proof(challenge, loop)
        link.sendall(said)
        head = exactly(link, 4)
        answer = exactly(link, struct.unpack("<I", head)[0])
        return link, said, struct.unpack("<I", answer[2:6])[0]

    link, said, loops = authenticated(0)
    link.close()
    again, _ = challenged()
    again.sendall(said)
    if not is_closed(again):
        sys.exit("a handshake may be replayed")
    refused += 1

    def header(kind, payload, key=0, chunk=0, worker=fenced, magic=0x31565444):
        return struct.pack("<IIBBBBiIIIfQQQQQ", magic, payload, kind, 0, 2, 0, 0, key, chunk, worker, 0.05, 1, 1,
                           int(round_number), 1, 1)

    dropped = found = 0
    # An old worker pushes 32 floats to the second key: the loop that owns the chunk refuses it, for
    # another loop it is not a frame.
    for loop in range(loops):
        link, _, _ = authenticated(loop)
        link.sendall(header(3, 128, key=1) + struct.pack("<32f", *[1e30] * 32))
        try:
            answer = exactly(link, 72)
        except (EOFError, ConnectionError):
            dropped += 1
            continue
        size, kind = struct.unpack("<IB", answer[4:9])
        failure = exactly(link, size)
        if kind != 66 or failure[0] != 4:
            sys.exit(f"an old worker's push is answered with {kind}: {failure}")
        found += 1
        link.close()
    if found != 1:
        sys.exit(f"{found} loops know the key")
    for bad in (header(3, 0xffffffff), header(3, 128, worker=0), header(99, 0), header(3, 4, magic=1), GARBAGE):
        link, _, _ = authenticated(0)
        try:
            link.sendall(bad)
        except ConnectionError:
            pass
        if not is_closed(link):
            sys.exit(f"goes on listening to {bad[:20]!r}")
        dropped += 1
    links, too_many = flood(where, 64)
    refused += too_many
    for link in links:
        if not is_closed(link):
            sys.exit("a connection may stay silent for 20 s")
    refused += len(links) - too_many
    return refused, dropped, found


def agent(path):
    scans(path)
    says(path, GARBAGE)
    says(path, b"\xff\xff\xff\xff\x40\x00")
    says(path, frame(64, b"\x01"))
    says(path, frame(64, struct.pack("<BI", 1, 0) + text(b"a guess at worker 0's token")))
    says(path, frame(1, struct.pack("<H", 1) + text(b"another job") + text(b"localhost") +
                     struct.pack("<QIII", 99, 1, 1, 0)))
    links, too_many = flood(path, 32)
    for link in links:
        if not is_closed(link):
            sys.exit("a connection may stay silent for 20 s")
    return 15 + len(links), 0, 0


def control(path):
    scans(path)
    says(path, GARBAGE)
    says(path, b"\xff\xff\xff\xff\xa0\x00")
    says(path, frame(160, b"\x01"))
    says(path, frame(161, text(b"{}")))
    links, too_many = flood(path, 64)
    for link in links:
        link.close()
    return too_many, 4, 0


def closed(*ports):
    for port in ports:
        try:
            door(("127.0.0.1", int(port)))
        except ConnectionRefusedError:
            continue
        sys.exit(f"somebody listens on the reserved port {port}")
    return 0, 0, 0


what = {"server": server, "agent": agent, "control": control, "closed": closed}[sys.argv[1]]
print("refused {} dropped {} fenced {}".format(*what(*sys.argv[2:])))
