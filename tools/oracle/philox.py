"""The random numbers of src/base/philox.h in numpy: the same seeds give the same initial weights and
batches."""

import numpy as np
import xxhash

INIT, DATA_ORDER, TEST = 1, 2, 5  # RandomPurpose
MASK = np.uint64(0xFFFFFFFF)


def blocks(seed, purpose, stream, index):
    """The four 32-bit words (as uint64 arrays) of each block number in `index`."""
    index = np.asarray(index, dtype=np.uint64)
    low = lambda x: np.uint64(x & 0xFFFFFFFF)
    c = [index & MASK, index >> np.uint64(32)]
    c += [np.full_like(index, low(stream)), np.full_like(index, low(stream >> 32))]
    key0 = low(seed) ^ low(purpose * 0x85EBCA6B)
    key1 = low((seed >> 32) + purpose)
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ key0, p1 & MASK, (p0 >> np.uint64(32)) ^ c[3] ^ key1, p0 & MASK]
        key0, key1 = low(int(key0) + 0x9E3779B9), low(int(key1) + 0xBB67AE85)
    return c


def bits64(seed, purpose, stream, count):
    b = blocks(seed, purpose, stream, np.arange((count + 1) // 2))
    pairs = np.stack([b[1] << np.uint64(32) | b[0], b[3] << np.uint64(32) | b[2]], 1)
    return pairs.reshape(-1)[:count]


def below(seed, purpose, stream, count, bound):
    """Integers in [0, bound), numbers 0 .. count - 1."""
    return np.array([(int(x) * bound) >> 64 for x in bits64(seed, purpose, stream, count)], dtype=np.int64)


def normal(seed, purpose, stream, count):
    """Standard normal numbers 0 .. count - 1 in double."""
    b = blocks(seed, purpose, stream, np.arange((count + 1) // 2))
    u = ((b[0] << np.uint64(21) ^ b[1] >> np.uint64(11)).astype(np.float64) + 1.0) * 2.0**-53
    v = (b[2] << np.uint64(21) ^ b[3] >> np.uint64(11)).astype(np.float64) * 2.0**-53
    radius, angle = np.sqrt(-2.0 * np.log(u)), 6.283185307179586476925 * v
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)[:count]


def stream_of(name):
    """hash64(name) of src/base/hash.h."""
    return xxhash.xxh3_64_intdigest(name.encode())
