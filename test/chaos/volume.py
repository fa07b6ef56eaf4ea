#!/usr/bin/env python3
"""A client of a volume, as a FUSE: what is done below WHERE is done in DISK, as fast and as well as CONTROL says.

usage: volume.py DISK WHERE CONTROL   (root; mounts in the mount namespace that it runs in, and serves until it is killed)
Nothing is remembered from one call to the next: others write there too. A request that a stalled volume has taken cannot
be taken back, as with a server that does not answer: who waits for it cannot even be killed.
"""
import collections
import ctypes
import errno
import mmap
import os
import queue
import resource
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable

WRITE_MAX = 1 << 17
REQUEST = struct.Struct("<IIQQIIIHH")
REPLY = struct.Struct("<IiQ")
ROOT = 1
FORGET, INIT, INTERRUPT, DESTROY, BATCH_FORGET = 2, 26, 36, 38, 42
SETATTR, SYMLINK, MKNOD, MKDIR, RENAME, LINK, OPEN, READ, WRITE, FSYNC, CREATE, RENAME2 = 4, 6, 8, 9, 12, 13, 14, 15, 16, 20, 35, 45
# What fails on a volume without room; where the device fails, this too.
NEED_ROOM = {SYMLINK, MKNOD, MKDIR, LINK, WRITE, CREATE}
CHANGES = {*NEED_ROOM, FSYNC, SETATTR, RENAME, RENAME2}
ATOMIC_O_TRUNC, BIG_WRITES, AUTO_INVAL_DATA, MAX_PAGES = 1 << 3, 1 << 5, 1 << 12, 1 << 22
OTHER_REQUEST_BYTES = 512  # what one without data costs on a slow volume
LOOK_S = 0.01              # at a stalled volume


class Control:
    """What the volume is to do, in a file that both sides map."""

    LAYOUT = struct.Struct("<iiiiqq")  # stalls, bytes/s, errno of changes, errno of reads; failed requests, held seconds

    def __init__(self, path: str) -> None:
        self.path = path
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(fd, self.LAYOUT.size)
        self._map = mmap.mmap(fd, self.LAYOUT.size)
        os.close(fd)

    def _get(self, at: int, of: str = "<i") -> int:
        return int(struct.unpack_from(of, self._map, at)[0])

    def _set(self, at: int, value: int, of: str = "<i") -> None:
        struct.pack_into(of, self._map, at, value)

    @property
    def stalls(self) -> int:
        return self._get(0)

    @stalls.setter
    def stalls(self, count: int) -> None:
        self._set(0, count)

    @property
    def rate(self) -> int:
        """Bytes in a second; 0: as fast as it can."""
        return self._get(4)

    @rate.setter
    def rate(self, rate: int) -> None:
        self._set(4, rate)

    @property
    def fails(self) -> int:
        """The errno of what would change something; 0: none."""
        return self._get(8)

    @fails.setter
    def fails(self, number: int) -> None:
        self._set(8, number)

    @property
    def fails_reads(self) -> int:
        return self._get(12)

    @fails_reads.setter
    def fails_reads(self, number: int) -> None:
        self._set(12, number)

    @property
    def failed(self) -> int:
        """How many requests got such an errno."""
        return self._get(16, "<q")

    @property
    def held_ms(self) -> int:
        """How long requests were held by stalls and by the rate, all together."""
        return self._get(24, "<q")

    def count(self, failed: int = 0, held_s: float = 0) -> None:
        self._set(16, self.failed + failed, "<q")
        self._set(24, self.held_ms + round(held_s * 1000), "<q")


class Node:
    def __init__(self, fd: int, key: tuple[int, int]) -> None:
        self.fd, self.key, self.lookups = fd, key, 0

    def path(self) -> str:
        return f"/proc/self/fd/{self.fd}"


class Volume:
    def __init__(self, disk: str, control: Control) -> None:
        self.control = control
        root = os.open(disk, os.O_PATH | os.O_DIRECTORY)
        state = os.stat(root)
        self.nodes = {ROOT: Node(root, (state.st_dev, state.st_ino))}
        self.by_key = {self.nodes[ROOT].key: ROOT}
        self.newest = ROOT
        self.folders: dict[int, list[tuple[int, str, int]]] = {}
        self.calls: dict[int, Callable[[int, bytes], bytes]] = {
            1: self.lookup, 3: self.getattr, SETATTR: self.setattr, 5: self.readlink, SYMLINK: self.symlink, MKNOD: self.mknod,
            MKDIR: self.mkdir, 10: self.unlink, 11: self.rmdir, RENAME: self.rename, LINK: self.link, OPEN: self.open,
            READ: self.read, WRITE: self.write, 17: self.statfs, 18: self.release, FSYNC: self.fsync, 25: self.nothing,
            INIT: self.init, 27: self.opendir, 28: self.readdir, 29: self.releasedir, 30: self.nothing, CREATE: self.create,
            RENAME2: self.rename2,
        }

    # ---- a request

    def answer(self, request: bytes) -> bytes | None:
        """None: it gets none."""
        _, opcode, unique, node, *_ = REQUEST.unpack_from(request)
        body = request[REQUEST.size:]
        if opcode in (FORGET, BATCH_FORGET):
            self.forget(opcode, node, body)
        if opcode in (FORGET, BATCH_FORGET, INTERRUPT, DESTROY):
            return None
        number, out = 0, b""
        try:
            if opcode != INIT:
                self.hold(opcode, body)
            if opcode not in self.calls:
                raise OSError(errno.ENOSYS, "")
            out = self.calls[opcode](node, body)
        except OSError as error:
            number = error.errno or errno.EIO
        except KeyError:
            number = errno.ESTALE
        return REPLY.pack(REPLY.size + len(out), -number, unique) + out

    def hold(self, opcode: int, body: bytes) -> None:
        began = time.monotonic()
        if rate := self.control.rate:
            data = struct.unpack_from("<I", body, 16)[0] if opcode in (READ, WRITE) else OTHER_REQUEST_BYTES
            time.sleep(data / rate)  # how long a slow volume takes, not a wait
        if (held := time.monotonic() - began) > 0.001:
            self.control.count(held_s=held)
        while self.control.stalls > 0:
            time.sleep(LOOK_S)  # between two looks, not a wait
            self.control.count(held_s=LOOK_S)
        number = self.control.fails_reads if opcode in (READ, OPEN) else self.control.fails
        if opcode not in ((NEED_ROOM if number == errno.ENOSPC else CHANGES) | {READ, OPEN}):
            return
        if number:
            self.control.count(failed=1)
            raise OSError(number, "")

    # ---- nodes

    def at(self, node: int) -> str:
        return self.nodes[node].path()

    def entry(self, folder: int, name: bytes) -> bytes:
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=self.nodes[folder].fd)
        state = os.stat(fd)
        key = (state.st_dev, state.st_ino)
        if key in self.by_key:
            os.close(fd)
        else:
            self.newest += 1
            self.nodes[self.newest] = Node(fd, key)
            self.by_key[key] = self.newest
        node = self.by_key[key]
        self.nodes[node].lookups += 1
        return struct.pack("<QQQQII", node, 0, 0, 0, 0, 0) + self.attributes(state)

    def forget(self, opcode: int, node: int, body: bytes) -> None:
        several = struct.pack("<Q", node) + body[:8] if opcode == FORGET else body[8:8 + 16 * struct.unpack_from("<I", body)[0]]
        for number, lookups in struct.iter_unpack("<QQ", several):
            forgotten = self.nodes.get(number)
            if not forgotten or number == ROOT:
                continue
            forgotten.lookups -= lookups
            if forgotten.lookups <= 0:
                os.close(forgotten.fd)
                del self.nodes[number], self.by_key[forgotten.key]

    @staticmethod
    def attributes(state: os.stat_result) -> bytes:
        def parts(ns: int) -> tuple[int, int]:
            return divmod(ns, 1_000_000_000)
        (a, a_ns), (m, m_ns), (c, c_ns) = parts(state.st_atime_ns), parts(state.st_mtime_ns), parts(state.st_ctime_ns)
        return struct.pack("<6Q10I", state.st_ino, state.st_size, state.st_blocks, a, m, c, a_ns, m_ns, c_ns, state.st_mode,
                           state.st_nlink, state.st_uid, state.st_gid, state.st_rdev & 0xFFFFFFFF, state.st_blksize, 0)

    # ---- calls: (node, body) -> answer

    def init(self, _: int, body: bytes) -> bytes:
        major, minor, ahead, flags = struct.unpack_from("<IIII", body)
        flags &= ATOMIC_O_TRUNC | BIG_WRITES | AUTO_INVAL_DATA | MAX_PAGES
        return struct.pack("<IIIIHHIIHHI28x", major, min(minor, 38), ahead, flags, 64, 48, WRITE_MAX, 1, WRITE_MAX // 4096, 0, 0)

    def nothing(self, node: int, body: bytes) -> bytes:
        return b""

    def lookup(self, node: int, body: bytes) -> bytes:
        return self.entry(node, body[:-1])

    def getattr(self, node: int, body: bytes) -> bytes:
        return struct.pack("<QII", 0, 0, 0) + self.attributes(os.stat(self.nodes[node].fd))

    def setattr(self, node: int, body: bytes) -> bytes:
        valid, _, handle, size, _, a, m, _, a_ns, m_ns, _, mode, _, uid, gid, _ = struct.unpack_from("<IIQQQQQQIIIIIIII", body)
        path = self.at(node)
        if valid & 1:
            os.chmod(path, stat.S_IMODE(mode))
        if valid & 6:
            os.chown(path, uid if valid & 2 else -1, gid if valid & 4 else -1)
        if valid & 8:
            os.truncate(handle if valid & 64 else path, size)
        if valid & 48:
            state, now = os.stat(path), time.time_ns()
            a_ns = now if valid & 128 else a * 1_000_000_000 + a_ns if valid & 16 else state.st_atime_ns
            m_ns = now if valid & 256 else m * 1_000_000_000 + m_ns if valid & 32 else state.st_mtime_ns
            os.utime(path, ns=(a_ns, m_ns))
        return self.getattr(node, b"")

    def readlink(self, node: int, body: bytes) -> bytes:
        return os.readlink(b"", dir_fd=self.nodes[node].fd)

    def symlink(self, node: int, body: bytes) -> bytes:
        name, target, _ = body.split(b"\0", 2)
        os.symlink(target, name, dir_fd=self.nodes[node].fd)
        return self.entry(node, name)

    def mknod(self, node: int, body: bytes) -> bytes:
        mode, device = struct.unpack_from("<II", body)
        os.mknod(body[16:-1], mode, device, dir_fd=self.nodes[node].fd)
        return self.entry(node, body[16:-1])

    def mkdir(self, node: int, body: bytes) -> bytes:
        os.mkdir(body[8:-1], struct.unpack_from("<I", body)[0], dir_fd=self.nodes[node].fd)
        return self.entry(node, body[8:-1])

    def unlink(self, node: int, body: bytes) -> bytes:
        os.unlink(body[:-1], dir_fd=self.nodes[node].fd)
        return b""

    def rmdir(self, node: int, body: bytes) -> bytes:
        os.rmdir(body[:-1], dir_fd=self.nodes[node].fd)
        return b""

    def rename(self, node: int, body: bytes) -> bytes:
        return self.renamed(node, struct.unpack_from("<Q", body)[0], 0, body[8:])

    def rename2(self, node: int, body: bytes) -> bytes:
        folder, flags = struct.unpack_from("<QI", body)
        return self.renamed(node, folder, flags, body[16:])

    def renamed(self, node: int, folder: int, flags: int, names: bytes) -> bytes:
        old, new, _ = names.split(b"\0", 2)
        if libc.renameat2(self.nodes[node].fd, old, self.nodes[folder].fd, new, flags):
            raise OSError(ctypes.get_errno(), "")
        return b""

    def link(self, node: int, body: bytes) -> bytes:
        os.link(self.at(struct.unpack_from("<Q", body)[0]), body[8:-1], dst_dir_fd=self.nodes[node].fd, follow_symlinks=True)
        return self.entry(node, body[8:-1])

    def open(self, node: int, body: bytes) -> bytes:
        flags = struct.unpack_from("<I", body)[0] & ~(os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
        return struct.pack("<QIi", os.open(self.at(node), flags | os.O_CLOEXEC), 0, 0)

    def create(self, node: int, body: bytes) -> bytes:
        flags, mode = struct.unpack_from("<II", body)
        fd = os.open(body[16:-1], flags | os.O_CREAT | os.O_CLOEXEC, mode & 0o7777, dir_fd=self.nodes[node].fd)
        return self.entry(node, body[16:-1]) + struct.pack("<QIi", fd, 0, 0)

    def read(self, node: int, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", body)
        return os.pread(handle, size, offset)

    def write(self, node: int, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", body)
        return struct.pack("<II", os.pwrite(handle, body[40:40 + size], offset), 0)

    def statfs(self, node: int, body: bytes) -> bytes:
        s = os.statvfs(self.at(node))
        return struct.pack("<5Q4I24x", s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_ffree, s.f_bsize, s.f_namemax, s.f_frsize, 0)

    def release(self, node: int, body: bytes) -> bytes:
        os.close(struct.unpack_from("<Q", body)[0])
        return b""

    def fsync(self, node: int, body: bytes) -> bytes:
        os.fsync(struct.unpack_from("<Q", body)[0])
        return b""

    def opendir(self, node: int, body: bytes) -> bytes:
        with os.scandir(self.at(node)) as entries:
            found = [(e.inode(), e.name, stat.S_IFMT(e.stat(follow_symlinks=False).st_mode) >> 12) for e in entries]
        self.newest += 1
        self.folders[self.newest] = [(1, ".", 4), (1, "..", 4), *found]
        return struct.pack("<QIi", self.newest, 0, 0)

    def readdir(self, node: int, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", body)
        out = b""
        for number, (inode, text, kind) in enumerate(self.folders[handle][offset:], offset + 1):
            name = os.fsencode(text)
            entry = struct.pack("<QQII", inode, number, len(name), kind) + name
            entry += bytes(-len(entry) % 8)
            if len(out) + len(entry) > size:
                break
            out += entry
        return out

    def releasedir(self, node: int, body: bytes) -> bytes:
        self.folders.pop(struct.unpack_from("<Q", body)[0], None)
        return b""


libc = ctypes.CDLL(None, use_errno=True)


def mounted(where: str) -> int:
    device = os.open("/dev/fuse", os.O_RDWR)
    words = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
    if libc.mount(b"volume", where.encode(), b"fuse.chaos", 0, words.encode()):
        raise OSError(ctypes.get_errno(), f"mount {where}")
    return device


def serve(device: int, volume: Volume) -> None:
    # What is taken from the kernel can no longer be interrupted: requests are taken also while they are held.
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    recent: collections.deque[str] = collections.deque(maxlen=1)

    def work() -> None:
        while True:
            reply = volume.answer(requests.get())
            try:
                if reply:
                    os.write(device, reply)
            except OSError as error:  # it was interrupted meanwhile
                recent.append(str(error))

    threading.Thread(target=work, daemon=True).start()
    while True:
        try:
            requests.put(os.read(device, WRITE_MAX + (1 << 16)))
        except InterruptedError:
            continue
        except OSError as error:
            if error.errno != errno.ENOENT:  # a request that was interrupted before it was read
                return


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    os.umask(0)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    disk, where, control = sys.argv[1:]
    volume = Volume(disk, Control(control))
    device = mounted(where)
    os.chdir("/")
    serve(device, volume)


if __name__ == "__main__":
    main()
