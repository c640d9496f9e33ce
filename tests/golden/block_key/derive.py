"""Derives the block keys and digests of vectors.json independently of the C++ code.

SHA-256's compression function is written out here from FIPS 180-4 (hashlib offers no bare state);
its own use as a whole hash is checked against hashlib first. `derive.py` compares,
`derive.py --update` rewrites vectors.json.
"""

import hashlib
import json
import pathlib
import struct
import sys

VECTORS = pathlib.Path(__file__).with_name("vectors.json")
MASK = 0xFFFFFFFF


def primes(count):
    found = []
    candidate = 2
    while len(found) < count:
        if all(candidate % p for p in found):
            found.append(candidate)
        candidate += 1
    return found


def integer_root(value, power):
    low, high = 0, 1 << (value.bit_length() // power + 1)
    while low < high:
        middle = (low + high + 1) // 2
        if middle**power <= value:
            low = middle
        else:
            high = middle - 1
    return low


# The first 32 bits of the fractional parts of cube and square roots of primes.
ROUND = [integer_root(p << 96, 3) & MASK for p in primes(64)]
START = [integer_root(p << 64, 2) & MASK for p in primes(8)]


def rotate(x, n):
    return (x >> n | x << (32 - n)) & MASK


def compress(state, chunk):
    w = list(struct.unpack(">16I", chunk))
    for i in range(16, 64):
        s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3
        s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10
        w.append((w[i - 16] + s0 + w[i - 7] + s1) & MASK)
    a, b, c, d, e, f, g, h = state
    for i in range(64):
        s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)
        t1 = (h + s1 + (e & f ^ ~e & MASK & g) + ROUND[i] + w[i]) & MASK
        s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)
        t2 = (s0 + (a & b ^ a & c ^ b & c)) & MASK
        a, b, c, d, e, f, g, h = (t1 + t2) & MASK, a, b, c, (d + t1) & MASK, e, f, g
    return [(x + y) & MASK for x, y in zip(state, [a, b, c, d, e, f, g, h])]


def whole_hash(data):
    padded = data + b"\x80" + bytes(-(len(data) + 9) % 64) + struct.pack(">Q", len(data) * 8)
    state = START
    for i in range(0, len(padded), 64):
        state = compress(state, padded[i : i + 64])
    return struct.pack(">8I", *state)


def next_key(previous, tokens):
    data = struct.pack(f"<{len(tokens)}I", *tokens)
    data += bytes(-len(data) % 64)
    state = list(struct.unpack(">8I", previous))
    for i in range(0, len(data), 64):
        state = compress(state, data[i : i + 64])
    return struct.pack(">8I", *state)


def namespace(fields, block_tokens):
    data = b"cachesvc-namespace-v1"
    names = ["weights", "model_config", "adapter", "adapter_revision", "tenant", "salt"]
    for tag, name in enumerate(names, 1):
        value = fields.get(name, "").encode()
        data += struct.pack("<BQ", tag, len(value)) + value
    if block_tokens % 16:
        data += struct.pack("<BQI", 7, 4, block_tokens)
    return hashlib.sha256(data).digest()


def derive():
    fields = {
        "weights": "stories260K",
        "model_config": "rope=10000",
        "adapter": "",
        "adapter_revision": "",
        "tenant": "tenant-a",
        "salt": "s",
    }
    chains = []
    for block_tokens in (1, 2, 4, 8, 16, 32, 64):
        digest = namespace(fields, block_tokens)
        tokens = [(i * 2654435761 + 7) % (1 << 32) for i in range(block_tokens * 4)]
        key = digest
        keys = []
        for i in range(0, len(tokens), block_tokens):
            key = next_key(key, tokens[i : i + block_tokens])
            keys.append(key.hex())
        chains.append(
            {
                "block_tokens": block_tokens,
                "namespace_digest": digest.hex(),
                "tokens": tokens,
                "keys": keys,
            }
        )
    return {"fields": fields, "chains": chains}


def main():
    for size in (0, 1, 55, 56, 63, 64, 65, 119, 120, 1000):
        data = bytes(i * 7 % 256 for i in range(size))
        assert whole_hash(data) == hashlib.sha256(data).digest(), size
    derived = derive()
    if "--update" in sys.argv:
        VECTORS.write_text(json.dumps(derived, indent=1) + "\n")
    stored = json.loads(VECTORS.read_text())
    if stored != derived:
        sys.exit("vectors.json differs from what was derived")
    print(f"{sum(len(c['keys']) for c in derived['chains'])} keys agree")


main()
