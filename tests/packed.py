"""What lies in the packs of a state folder, to look at and to harm."""

from pathlib import Path

from dataaudit.engine.store_entries import PACKS, read_pack


def packs(state):
    """Return the packs of a state folder."""
    return sorted(path for path in (Path(state) / "partials" / PACKS).rglob("*") if path.is_file())


def entries(state, kind, suffix=""):
    """Return where the entries of a kind lie, or the rows of a name beside them, by key."""
    every = [stored for path in packs(state) for stored in read_pack(path)]
    return sorted(
        (one for one in every if one.name.startswith(f"{kind}/") and one.name.partition(".")[2] == suffix),
        key=lambda one: one.name,
    )


def flip(stored, place=-20):
    """Flip a bit of what is stored."""
    path = Path(stored.path)
    data = bytearray(path.read_bytes())
    data[stored.offset + place % stored.size] ^= 1
    path.write_bytes(data)
