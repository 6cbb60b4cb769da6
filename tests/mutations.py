"""Seeded damage to files: of their bytes, of the members of an archive, and of a document."""

import copy
import json
import warnings
import zipfile
from io import BytesIO

ODD_BYTES = (0, 1, 10, 32, 39, 40, 41, 44, 45, 76, 92, 127, 255)
ODD_VALUES = (
    None,
    True,
    -1,
    0,
    3.5,
    10**12,
    "",
    "\x1b[31mred",
    "nan",
    [],
    [[]],
    {},
    {"$float": "inf"},
    {"$array": "components_"},
    {"$tuple": [1]},
)


def mutate_bytes(content, rng):
    """One to three changes: a byte, some bytes lost, repeated, or the end cut off."""
    content = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        position = int(rng.integers(len(content) + 1))
        end = position + int(rng.integers(1, 9))
        match rng.integers(6):
            case 0 | 1:
                content[position:end] = bytes(rng.choice(ODD_BYTES, size=end - position).tolist())
            case 2:
                content[position : position + 1] = rng.bytes(1)
            case 3:
                del content[position:end]
            case 4:
                content[position:position] = content[position:end]
            case 5:
                if rng.random() < 0.2:
                    del content[position:]
    return bytes(content)


def mutate_archive(content, rng):
    """Another archive, sound as such: a member damaged, lost, renamed, or compressed."""
    with zipfile.ZipFile(BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = list(members)[rng.integers(len(members))]
    method = zipfile.ZIP_STORED
    match rng.integers(8):
        case 0:
            del members[name]
        case 1:
            members[f"{name}x"] = members.pop(name)
        case 2:
            method = (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)[rng.integers(3)]
        case 3 | 4 if name.endswith(".npy"):
            head = members[name][:128]
            members[name] = mutate_bytes(head, rng) + members[name][128:]
        case _:
            members[name] = mutate_bytes(members[name], rng)
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a name that is there twice
        for member, data in members.items():
            archive.writestr(member, data)
    return stream.getvalue()


def mutate_document(content, rng, member="model.json"):
    """The JSON document of an archive with a value replaced, lost, or under another name."""
    with zipfile.ZipFile(BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    document = json.loads(members[member])
    for _ in range(rng.integers(1, 3)):
        places = list(_places(document))
        container, key = places[rng.integers(len(places))]
        match rng.integers(5):
            case 0:
                del container[key]
            case 1 if isinstance(container, dict):
                container[f"{key}x"] = container.pop(key)
            case 2:
                other, its_key = places[rng.integers(len(places))]
                if its_key in other if isinstance(other, dict) else its_key < len(other):
                    container[key] = copy.deepcopy(other[its_key])
            case _:
                container[key] = ODD_VALUES[rng.integers(len(ODD_VALUES))]
    members[member] = json.dumps(document).encode()
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def _places(value):
    """Every container inside a document with each of its keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])
