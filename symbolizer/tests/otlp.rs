//! OTLP: the message keeps the rules of OpenTelemetry's definitions, whatever the profile.

use std::collections::HashSet;

use crate::common::totals::otlp;
use crate::common::{LogBuilder, server_profile, server_symbols};
use heapprof_symbolizer::export::otlp::proto::{ProfilesData, ProfilesDictionary, Value};
use heapprof_symbolizer::export::otlp::{Resource, increment};
use heapprof_symbolizer::export::{Format, Increment};
use heapprof_symbolizer::{
    Metric, Numbers, Profile, ReadRequest, Symbols, Temporary, profile_of_log, profile_of_view,
};
use prost::Message;

/// Asserts the rules of the tables: entry 0 is empty, no entry is there twice, every reference
/// leads to an entry, and no entry but the first is unused.
pub(crate) fn keeps_the_rules(data: &ProfilesData) {
    let dictionary = data.dictionary.as_ref().expect("a dictionary");
    let ProfilesDictionary {
        mapping_table: mappings,
        location_table: locations,
        function_table: functions,
        link_table: links,
        string_table: strings,
        attribute_table: attributes,
        stack_table: stacks,
    } = dictionary;
    assert_eq!(strings[0], "");
    assert_eq!(strings.iter().collect::<HashSet<_>>().len(), strings.len());
    starts_empty_and_is_distinct(mappings);
    starts_empty_and_is_distinct(locations);
    starts_empty_and_is_distinct(functions);
    starts_empty_and_is_distinct(links);
    starts_empty_and_is_distinct(attributes);
    starts_empty_and_is_distinct(stacks);

    let mut used_strings = vec![0];
    let mut used_attributes = vec![0];
    let (mut used_stacks, mut used_locations) = (vec![0], vec![0]);
    let (mut used_mappings, mut used_functions) = (vec![0], vec![0]);
    let mut ids = HashSet::new();
    for resource in &data.resource_profiles {
        let resource_attributes = &resource.resource.as_ref().expect("a resource").attributes;
        let keys: HashSet<_> = resource_attributes.iter().map(|known| &known.key).collect();
        assert_eq!(keys.len(), resource_attributes.len());
        for profile in resource
            .scope_profiles
            .iter()
            .flat_map(|scope| &scope.profiles)
        {
            assert!(ids.insert(&profile.profile_id), "an id twice");
            assert_eq!(profile.profile_id.len(), 16);
            assert!(profile.profile_id.iter().any(|&byte| byte != 0));
            for value_type in [profile.sample_type, profile.period_type] {
                let value_type = value_type.expect("a type");
                assert!(value_type.type_strindex > 0 && value_type.unit_strindex > 0);
                used_strings.extend([value_type.type_strindex, value_type.unit_strindex]);
            }
            assert!(profile.period > 0);
            used_attributes.extend(&profile.attribute_indices);
            for sample in &profile.samples {
                assert_eq!(sample.values.len(), 1, "one value for one sample type");
                assert_eq!(sample.link_index, 0);
                used_stacks.push(sample.stack_index);
                used_attributes.extend(&sample.attribute_indices);
            }
        }
    }
    for stack in stacks {
        used_locations.extend(&stack.location_indices);
    }
    for location in locations {
        used_mappings.push(location.mapping_index);
        used_functions.extend(location.lines.iter().map(|line| line.function_index));
        used_attributes.extend(&location.attribute_indices);
    }
    for function in functions {
        used_strings.extend([
            function.name_strindex,
            function.system_name_strindex,
            function.filename_strindex,
        ]);
    }
    for mapping in mappings {
        used_strings.push(mapping.filename_strindex);
        used_attributes.extend(&mapping.attribute_indices);
    }
    for attribute in attributes {
        used_strings.extend([attribute.key_strindex, attribute.unit_strindex]);
    }
    for (what, used, table) in [
        ("string", used_strings, strings.len()),
        ("attribute", used_attributes, attributes.len()),
        ("stack", used_stacks, stacks.len()),
        ("location", used_locations, locations.len()),
        ("mapping", used_mappings, mappings.len()),
        ("function", used_functions, functions.len()),
    ] {
        let used: HashSet<i32> = used.into_iter().collect();
        let all: HashSet<i32> = (0..table as i32).collect();
        assert_eq!(used, all, "{what}: what is used, and what is there");
    }
}

fn starts_empty_and_is_distinct<T: Message + Default + PartialEq>(table: &[T]) {
    assert!(table[0] == T::default());
    let distinct: HashSet<Vec<u8>> = table.iter().map(Message::encode_to_vec).collect();
    assert_eq!(distinct.len(), table.len());
}

#[test]
fn the_tables_keep_their_rules() {
    for interval in [1, 4096, 524_288] {
        let profile = server_profile(interval);
        keeps_the_rules(&otlp(
            &profile,
            &server_symbols(&profile),
            Metric::InUseBytes,
        ));
        keeps_the_rules(&otlp(
            &profile,
            &Symbols::none(&profile),
            Metric::InUseBytes,
        ));
    }
    let empty = Profile::default();
    keeps_the_rules(&otlp(&empty, &Symbols::none(&empty), Metric::InUseBytes));
}

#[test]
fn a_profile_with_pasts_has_a_profile_for_each_of_its_sums() {
    let mut log = LogBuilder::new(1);
    let stack = log.stack(&[0x40_1000]);
    let id = log.alloc(stack, 40);
    log.free(id);
    let request = ReadRequest {
        pasts: Some(Temporary::default()),
        ..ReadRequest::default()
    };
    let profile = profile_of_view(&log.end(), &request, |_| ()).expect("a log");
    let data = otlp(&profile, &Symbols::none(&profile), Metric::InUseBytes);
    keeps_the_rules(&data);
    let strings = &data.dictionary.as_ref().expect("a dictionary").string_table;
    let profiles = &data.resource_profiles[0].scope_profiles[0].profiles;
    let names: Vec<_> = (profiles.iter())
        .map(|profile| {
            let index = profile.sample_type.expect("a type").type_strindex;
            strings[index as usize].as_str()
        })
        .collect();
    assert_eq!(
        names[..4],
        [
            "alloc_objects",
            "alloc_space",
            "inuse_objects",
            "inuse_space"
        ]
    );
    assert!(names.contains(&"peak_space"), "{names:?}");
    // One block of 40 bytes, freed: nothing is in use, and it is in the peak.
    let of = |name: &str| {
        let at = names
            .iter()
            .position(|known| *known == name)
            .expect("a sum");
        profiles[at]
            .samples
            .iter()
            .map(|sample| sample.values[0])
            .sum::<i64>()
    };
    assert_eq!(
        (of("alloc_space"), of("inuse_space"), of("peak_space")),
        (40, 0, 40)
    );
}

#[test]
fn a_mapping_states_its_build_id() {
    let profile = server_profile(1);
    let data = otlp(&profile, &Symbols::none(&profile), Metric::InUseBytes);
    let dictionary = data.dictionary.expect("a dictionary");
    for mapping in &dictionary.mapping_table[1..] {
        let path = &dictionary.string_table[mapping.filename_strindex as usize];
        let module = profile.modules.iter().find(|module| module.path == *path);
        let build_id: String = (module.expect("a module").build_id.iter())
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let attribute = &dictionary.attribute_table[mapping.attribute_indices[0] as usize];
        let key = &dictionary.string_table[attribute.key_strindex as usize];
        assert_eq!(key, "process.executable.build_id.gnu");
        let value = attribute.value.clone().expect("a value").value;
        assert_eq!(value, Some(Value::StringValue(build_id)));
    }
    assert!(dictionary.mapping_table.len() > 1);
}

#[test]
fn an_increment_is_sent_without_the_command_line_and_with_the_given_service() {
    let mut log = LogBuilder::new(1);
    let stack = log.stack(&[0x40_1000]);
    log.alloc(stack, 64);
    let profile = profile_of_log(&log.end(), |_| ()).expect("a log");
    let part = Increment {
        from_ns: 1_000,
        to_ns: 3_000,
        stacks: vec![(
            0,
            Numbers {
                in_use_objects: 1,
                in_use_bytes: 64,
                allocated_objects: 3,
                allocated_bytes: 192,
            },
        )],
    };
    let resource = Resource {
        service: "shop".into(),
        attributes: vec![
            ("process.pid".into(), "0".into()),
            ("zone".into(), "b".into()),
        ],
    };
    let data = increment(&profile, &Symbols::none(&profile), &part, &resource);
    keeps_the_rules(&data);
    let attributes = &data.resource_profiles[0]
        .resource
        .as_ref()
        .expect("one")
        .attributes;
    let value = |key: &str| {
        let found = attributes.iter().find(|known| known.key == key)?;
        found.value.clone()?.value
    };
    let text = |text: &str| Some(Value::StringValue(text.into()));
    assert_eq!(value("service.name"), text("shop"));
    assert_eq!(
        (value("process.pid"), value("zone")),
        (text("0"), text("b"))
    );
    let profiles = &data.resource_profiles[0].scope_profiles[0].profiles;
    let values: Vec<i64> = profiles
        .iter()
        .map(|profile| profile.samples[0].values[0])
        .collect();
    assert_eq!(values, [3, 192, 1, 64]);
    assert_eq!(
        profiles[0].time_unix_nano,
        profile.run.start_wall_ns + 1_000
    );
    assert_eq!(profiles[0].duration_nano, 2_000);
    assert!(
        !format!("{data:?}").contains("--fast"),
        "the command line is sent"
    );
    let whole = otlp(&profile, &Symbols::none(&profile), Metric::InUseBytes);
    assert!(
        format!("{whole:?}").contains("--fast"),
        "the test's log has no command line"
    );
    assert!(Format::Otlp.is_binary());
}

/// A field that the definitions lack would be gone from their encoding.
#[test]
fn the_published_definitions_have_every_field() {
    use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
    use opentelemetry_proto::tonic::profiles::v1development as published;

    for interval in [1, 4096] {
        let profile = server_profile(interval);
        let symbols = server_symbols(&profile);
        let bytes = otlp(&profile, &symbols, Metric::default()).encode_to_vec();
        let data = published::ProfilesData::decode(&bytes[..]).expect("their message");
        assert_eq!(data.encode_to_vec(), bytes);
        let request = ExportProfilesServiceRequest::decode(&bytes[..]).expect("their request");
        assert_eq!(request.encode_to_vec(), bytes);
        let dictionary = data.dictionary.expect("a dictionary");
        assert_eq!(dictionary.string_table[0], "");
        assert_eq!(dictionary.mapping_table[0], published::Mapping::default());
        assert_eq!(
            dictionary.attribute_table[0],
            published::KeyValueAndUnit::default()
        );
        let profiles = &data.resource_profiles[0].scope_profiles[0].profiles;
        assert_eq!(profiles.len(), 4);
    }
}
