"""The machine code of many kernels in one ELF file: NVIDIA's disassembler takes a fifth of a second to start, and then hardly anything.

Only what it prints instructions from goes there: code, the addresses in it that are names, and the names.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

from flamepy.cuda.kernels import nvdisasm

HEADER, SECTION, SYMBOL = (struct.Struct(s) for s in ("<16sHHIQQQIHHHHHH", "<IIQQQQIIQQ", "<IBBHQQ"))
NAME, KIND, OFFSET, SIZE, LINK, ABOUT = 0, 1, 4, 5, 6, 7  # fields of a section
NAMES, SYMBOLS, PLACES = 1, 2, 3  # sections of a merged file; from PLACES on the kernels'
SYMTAB, STRTAB, RELA, REL = 2, 3, 4, 9
PLACE = {RELA: struct.Struct("<QQq"), REL: struct.Struct("<QQ")}
OUTSIDE = 0xFFF1


class Merged:
    """A file of several cubins for one GPU. Sections keep their names behind the number of their kernel."""

    def __init__(self, cubins: Sequence[bytes]):
        self.names, self.symbols, self.rows, self.bodies = bytearray(b"\0"), bytearray(), [], []
        for number, cubin in enumerate(cubins):
            self.add(b".text.%d/" % number, cubin)
        self.head = HEADER.unpack_from(cubins[0])

    def named(self, name: bytes) -> int:
        self.names += name + b"\0"
        return len(self.names) - len(name) - 1

    def add(self, mark: bytes, cubin: bytes) -> None:
        head = HEADER.unpack_from(cubin)
        rows = [list(SECTION.unpack_from(cubin, head[6] + i * SECTION.size)) for i in range(head[12])]
        bodies = [cubin[r[OFFSET] : r[OFFSET] + r[SIZE]] for r in rows]
        names = [bodies[head[13]][r[NAME] :].partition(b"\0")[0] for r in rows]
        taken = [i for i, name in enumerate(names) if name.startswith((b".text.", b".rela.text.", b".rel.text."))]
        place = {i: PLACES + len(self.rows) + n for n, i in enumerate(taken)}
        first = len(self.symbols) // SYMBOL.size
        (table,) = (i for i, r in enumerate(rows) if r[KIND] == SYMTAB)
        for name, info, other, where, value, size in SYMBOL.iter_unpack(bodies[table]):
            text = bodies[rows[table][LINK]][name:].partition(b"\0")[0]
            self.symbols += SYMBOL.pack(self.named(text), info, other, place.get(where, where and OUTSIDE), value, size)
        for i in taken:
            row, body = rows[i], bodies[i]
            row[NAME] = self.named(names[i].replace(b".text.", mark, 1))
            if row[KIND] in PLACE:
                row[LINK], row[ABOUT] = SYMBOLS, place[row[ABOUT]]
                entry = PLACE[row[KIND]]
                body = b"".join(entry.pack(at, which + (first << 32), *plus) for at, which, *plus in entry.iter_unpack(body))
            self.rows.append(row)
            self.bodies.append(body)

    def file(self) -> bytes:
        blank = [0] * 8
        rows = [[0, STRTAB, *blank], [0, SYMTAB, *blank], *self.rows]
        rows[1][LINK], rows[1][8:] = NAMES, [8, SYMBOL.size]
        data, table = bytearray(HEADER.size), bytearray(SECTION.size)
        for row, body in zip(rows, (self.names, self.symbols, *self.bodies), strict=True):
            data += bytes(-len(data) % 128)
            row[OFFSET], row[SIZE] = len(data), len(body)
            data += body
            table += SECTION.pack(*row)
        data += bytes(-len(data) % 8)
        data[: HEADER.size] = HEADER.pack(*self.head[:5], 0, len(data), *self.head[7:11], SECTION.size, 1 + len(rows), NAMES)
        return bytes(data + table)


def listings(cubins: Sequence[bytes]) -> list[str]:
    """What nvdisasm() prints of each, but for labels that nothing jumps to."""
    found = [""] * len(cubins)
    parts = re.split(r"^\s*\.section\s+\.text\.(\d+)/.*$", nvdisasm(Merged(cubins).file()), flags=re.M)
    for number, text in zip(parts[1::2], parts[2::2], strict=True):
        found[int(number)] += re.sub(r"(?<=\w)__\d+\b", "", text)  # put behind names that several kernels have
    return found
