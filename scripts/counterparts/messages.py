"""Messages: the published definitions of OTLP, of Pyroscope's `push.v1` and of pprof, strictly
checked.

A field that the definitions lack, and a broken rule of a table, is an error.
"""

import gzip
import re

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2
from opentelemetry.proto.profiles.v1development import profiles_pb2

from .environment import check

ORDER = ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"]


def messages(package, definitions):
    """Makes message classes from {message: {field: (number, type, is repeated)}}."""
    file = descriptor_pb2.FileDescriptorProto(name=package + ".proto", package=package, syntax="proto3")
    scalars = {
        "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
        "uint64": descriptor_pb2.FieldDescriptorProto.TYPE_UINT64,
        "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
        "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
        "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    }
    for name, fields in definitions.items():
        message = file.message_type.add(name=name)
        for field, (number, kind, repeated) in fields.items():
            made = message.field.add(name=field, number=number)
            made.label = made.LABEL_REPEATED if repeated else made.LABEL_OPTIONAL
            if kind in scalars:
                made.type = scalars[kind]
            else:
                made.type = made.TYPE_MESSAGE
                made.type_name = f".{package}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in definitions
    }


PUSH = messages("push.v1", {
    "PushRequest": {"series": (1, "RawProfileSeries", True)},
    "RawProfileSeries": {"labels": (1, "LabelPair", True), "samples": (2, "RawSample", True)},
    "RawSample": {"raw_profile": (1, "bytes", False), "ID": (2, "string", False)},
    "LabelPair": {"name": (1, "string", False), "value": (2, "string", False)},
})
PPROF = messages("perftools.profiles", {
    "Profile": {
        "sample_type": (1, "ValueType", True), "sample": (2, "Sample", True),
        "mapping": (3, "Mapping", True), "location": (4, "Location", True),
        "function": (5, "Function", True), "string_table": (6, "string", True),
        "drop_frames": (7, "int64", False), "keep_frames": (8, "int64", False),
        "time_nanos": (9, "int64", False), "duration_nanos": (10, "int64", False),
        "period_type": (11, "ValueType", False), "period": (12, "int64", False),
        "comment": (13, "int64", True), "default_sample_type": (14, "int64", False),
    },
    "ValueType": {"type": (1, "int64", False), "unit": (2, "int64", False)},
    "Sample": {"location_id": (1, "uint64", True), "value": (2, "int64", True), "label": (3, "Label", True)},
    "Label": {"key": (1, "int64", False), "str": (2, "int64", False), "num": (3, "int64", False),
              "num_unit": (4, "int64", False)},
    "Mapping": {
        "id": (1, "uint64", False), "memory_start": (2, "uint64", False),
        "memory_limit": (3, "uint64", False), "file_offset": (4, "uint64", False),
        "filename": (5, "int64", False), "build_id": (6, "int64", False),
        "has_functions": (7, "bool", False), "has_filenames": (8, "bool", False),
        "has_line_numbers": (9, "bool", False), "has_inline_frames": (10, "bool", False),
    },
    "Location": {"id": (1, "uint64", False), "mapping_id": (2, "uint64", False),
                 "address": (3, "uint64", False), "line": (4, "Line", True), "is_folded": (5, "bool", False)},
    "Line": {"function_id": (1, "uint64", False), "line": (2, "int64", False), "column": (3, "int64", False)},
    "Function": {"id": (1, "uint64", False), "name": (2, "int64", False), "system_name": (3, "int64", False),
                 "filename": (4, "int64", False), "start_line": (5, "int64", False)},
})


def parse(kind, data):
    """Decodes a message; a field that the definition lacks is an error, at any depth."""
    message = kind()
    message.ParseFromString(data)
    refuse_unknown(message)
    return message


def refuse_unknown(message):
    unknown = list(UnknownFieldSet(message))
    check(not unknown, f"{message.DESCRIPTOR.name}: unknown fields {[f.field_number for f in unknown]}")
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for one in value if field.is_repeated else [value]:
                refuse_unknown(one)


def otlp_message(data, is_pushed=True):
    """Checks a message of OTLP by the definitions. Returns (id, pid, sums, begin, end)."""
    kind = profiles_service_pb2.ExportProfilesServiceRequest if is_pushed else profiles_pb2.ProfilesData
    message = parse(kind, data)
    tables = message.dictionary
    strings = tables.string_table
    check(strings[0] == "", "string 0 is not empty")
    check(len(set(strings)) == len(strings), "a string is there twice")
    for name in ("mapping", "location", "function", "link", "attribute", "stack"):
        table = getattr(tables, name + "_table")
        check(len(table) > 0, f"the table of {name}s lacks its entry 0")
        check(table[0] == type(table[0])(), f"{name} 0 is not empty")
        encoded = [entry.SerializeToString(deterministic=True) for entry in table]
        check(len(set(encoded)) == len(encoded), f"a {name} is there twice")

    def string(index):
        check(0 <= index < len(strings), f"there is no string {index}")
        return strings[index]

    def attributes(indices):
        found = {}
        for index in indices:
            check(0 < index < len(tables.attribute_table), f"there is no attribute {index}")
            attribute = tables.attribute_table[index]
            key = string(attribute.key_strindex)
            check(key and key not in found, f"attribute {key!r} is there twice, or has no name")
            check(attribute.value.WhichOneof("value"), f"attribute {key} has no value")
            string(attribute.unit_strindex)
            found[key] = attribute.value
        return found

    for mapping in tables.mapping_table[1:]:
        check(mapping.memory_start < mapping.memory_limit, "a mapping is empty")
        path = string(mapping.filename_strindex)
        ids = attributes(mapping.attribute_indices)
        build_id = ids.get("process.executable.build_id.gnu")
        check(path.startswith("[") or build_id, f"{path} has no build-id")
        if build_id:
            check(re.fullmatch("([0-9a-f]{2})+", build_id.string_value), "a build-id is not hexadecimal")
    for location in tables.location_table[1:]:
        check(0 <= location.mapping_index < len(tables.mapping_table), "there is no such mapping")
        mapping = tables.mapping_table[location.mapping_index]
        if location.mapping_index:
            check(mapping.memory_start <= location.address < mapping.memory_limit, "an address is outside")
        check(attributes(location.attribute_indices)["profile.frame.type"].string_value == "native", "frame")
        for line in location.lines:
            check(0 < line.function_index < len(tables.function_table), "there is no such function")
    for function in tables.function_table[1:]:
        check(string(function.name_strindex), "a function has no name")
        string(function.system_name_strindex), string(function.filename_strindex)
    for stack in tables.stack_table[1:]:
        check(stack.location_indices, "a stack but the first is empty")
        for index in stack.location_indices:
            check(0 < index < len(tables.location_table), f"there is no location {index}")

    [resource] = message.resource_profiles
    known = {attribute.key: attribute.value for attribute in resource.resource.attributes}
    check(known["service.name"].string_value, "service.name is empty")
    check(len(known) == len(resource.resource.attributes), "a resource attribute is there twice")
    [scope] = resource.scope_profiles
    check(scope.scope.name == "heapprof" and scope.scope.version, "scope")
    sums, ids, times = {}, [], set()
    for profile in scope.profiles:
        name = string(profile.sample_type.type_strindex)
        check(string(profile.sample_type.unit_strindex), "a sample type has no unit")
        check(name not in sums, f"{name} is there twice")
        check(len(profile.profile_id) == 16 and any(profile.profile_id), "profile_id")
        check(profile.period > 0 and string(profile.period_type.type_strindex), "period")
        check(profile.time_unix_nano > 0, "time")
        attributes(profile.attribute_indices)
        seen = set()
        for sample in profile.samples:
            check(0 <= sample.stack_index < len(tables.stack_table), "there is no such stack")
            check(sample.link_index == 0 and len(sample.values) == 1, "a sample has one value")
            attributes(sample.attribute_indices)
            identity = (sample.stack_index, tuple(sample.attribute_indices))
            check(identity not in seen or not is_pushed, "two samples have one identity")
            seen.add(identity)
        sums[name] = sum(sample.values[0] for sample in profile.samples)
        ids.append(profile.profile_id.hex())
        times.add((profile.time_unix_nano, profile.time_unix_nano + profile.duration_nano))
    check(len(set(ids)) == len(ids), "an id is there twice")
    check(list(sums)[:4] == ORDER, f"sample types {list(sums)}")
    [(begin, end)] = times
    return ids[0], known["process.pid"].int_value, [sums[name] for name in ORDER], begin, end


def pprof_profile(data, is_sent=True):
    """Checks a profile as Parca and Pyroscope do. Returns (sums, begin, end). `is_sent`: it leaves
    the machine by itself, without the command line."""
    profile = parse(PPROF["Profile"], gzip.decompress(data))
    strings = profile.string_table
    check(strings[0] == "", "string 0 is not empty")
    types = [(strings[kind.type], strings[kind.unit]) for kind in profile.sample_type]
    check(types == list(zip(ORDER, ["count", "bytes"] * 2)), f"sample types {types}")
    for name in ("mapping", "location", "function"):
        ids = [entry.id for entry in getattr(profile, name)]
        check(ids == list(range(1, len(ids) + 1)), f"ids of {name}s are not those from 1")
    for location in profile.location:
        check(location.mapping_id <= len(profile.mapping), "there is no such mapping")
        for line in location.line:
            check(0 < line.function_id <= len(profile.function), "there is no such function")
    for mapping in profile.mapping:
        check(mapping.memory_start < mapping.memory_limit, "a mapping is empty")
        path = strings[mapping.filename]
        check(path.startswith("[") or strings[mapping.build_id], f"{path} has no build-id")
    for sample in profile.sample:
        check(len(sample.value) == 4, "a sample has four values")
        check(all(0 < at <= len(profile.location) for at in sample.location_id), "no such location")
    sums = [sum(sample.value[at] for sample in profile.sample) for at in range(4)]
    check(not is_sent or not any("command: " in strings[comment] for comment in profile.comment), "a command line")
    return sums, profile.time_nanos, profile.time_nanos + profile.duration_nanos
