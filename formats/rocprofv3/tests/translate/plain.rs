//! A simple reader of the file: everything in memory, each value looked up at its place.

use super::shard::{Contents, Row, int, text};
use rpd_shard::model::{OwnedValue, TableId, rocpd};
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// Number and total duration by name.
pub(crate) type Totals = BTreeMap<String, (u64, i64)>;

fn add(totals: &mut Totals, name: String, length: i64) {
    let total = totals.entry(name).or_default();
    total.0 += 1;
    total.1 += length;
}

fn array<'a>(process: &'a Json, path: [&str; 2]) -> &'a [Json] {
    process[path[0]][path[1]].as_array().map_or(&[], |array| array)
}

fn length(record: &Json) -> i64 {
    record["end_timestamp"].as_i64().unwrap() - record["start_timestamp"].as_i64().unwrap()
}

fn of_row(row: &Row) -> i64 {
    int(row, "end") - int(row, "start")
}

/// Returns the name of a record's operation, `KIND/operation`.
fn operation(process: &Json, record: &Json) -> String {
    let kind = &process["strings"]["buffer_records"][record["kind"].as_u64().unwrap() as usize];
    let operation = &kind["operations"][record["operation"].as_u64().unwrap() as usize];
    format!("{}/{}", kind["kind"].as_str().unwrap(), operation.as_str().unwrap())
}

fn by_operation(process: &Json, kinds: &[&str]) -> Totals {
    let mut totals = Totals::new();
    for record in kinds.iter().flat_map(|kind| array(process, ["buffer_records", kind])) {
        add(&mut totals, operation(process, record), length(record));
    }
    totals
}

/// Compares all activity of one process with the rows of its source.
pub(crate) fn compare(process: &Json, shard: &Contents, source: u32) {
    let rows = |table: TableId| shard.rows(source, table);
    let event = |row: &Row| shard.referred(source, row, "event_id", rocpd::EVENT);
    let category = |row: &Row| shard.name(event(row), "category_id");

    // Calls: regions and samples.
    let mut calls = Totals::new();
    for row in rows(rocpd::REGION) {
        assert_ne!(of_row(row), 0);
        add(&mut calls, format!("{}/{}", category(row), shard.name(row, "name_id")), of_row(row));
    }
    let mut samples: BTreeMap<String, u64> = BTreeMap::new();
    for row in rows(rocpd::SAMPLE) {
        let track = shard.referred(source, row, "track_id", rocpd::TRACK);
        assert_eq!(shard.name(track, "name_id"), category(row));
        let thread = shard.referred(source, track, "tid", rocpd::INFO_THREAD);
        *samples.entry(format!("{}/{}", category(row), int(thread, "tid"))).or_default() += 1;
    }
    let (mut wanted, mut wanted_samples) = (Totals::new(), BTreeMap::new());
    let apis = ["hip_api", "hsa_api", "marker_api", "rccl_api"].iter();
    let records: Vec<&Json> = apis.flat_map(|api| array(process, ["buffer_records", api])).collect();
    for record in &records {
        let name = operation(process, record);
        if length(record) != 0 {
            add(&mut wanted, name, length(record));
        } else {
            let kind = name.split('/').next().unwrap();
            *wanted_samples.entry(format!("{kind}/{}", record["thread_id"])).or_default() += 1;
        }
    }
    assert_eq!((calls, samples), (wanted, wanted_samples));
    let arguments: usize = records.iter().filter_map(|r| Some(r.get("args")?.as_array()?.len())).sum();
    assert_eq!(rows(rocpd::ARG).len(), arguments);

    // Kernels by the name of their symbol.
    let mut kernels = Totals::new();
    for record in array(process, ["buffer_records", "kernel_dispatch"]) {
        let id = &record["dispatch_info"]["kernel_id"];
        let symbols = process["kernel_symbols"].as_array().unwrap();
        let symbol = symbols.iter().find(|s| s["kernel_id"] == *id).unwrap();
        add(&mut kernels, symbol["formatted_kernel_name"].as_str().unwrap().to_owned(), length(record));
    }
    let mut found = Totals::new();
    for row in rows(rocpd::KERNEL_DISPATCH) {
        let symbol = shard.referred(source, row, "kernel_id", rocpd::INFO_KERNEL_SYMBOL);
        add(&mut found, text(symbol, "display_name"), of_row(row));
        assert_eq!(category(row), "KERNEL_DISPATCH");
    }
    assert_eq!(found, kernels);

    // Copies and allocations.
    let mut copies = Totals::new();
    for row in rows(rocpd::MEMORY_COPY) {
        add(&mut copies, format!("{}/{}", category(row), shard.name(row, "name_id")), of_row(row));
    }
    assert_eq!(copies, by_operation(process, &["memory_copy"]));
    let bytes: u64 =
        array(process, ["buffer_records", "memory_copy"]).iter().map(|r| r["bytes"].as_u64().unwrap()).sum();
    assert_eq!(rows(rocpd::MEMORY_COPY).iter().map(|r| int(r, "size") as u64).sum::<u64>(), bytes);
    let mut allocations = Totals::new();
    for row in rows(rocpd::MEMORY_ALLOCATE) {
        let name = format!("{}/{} {}", category(row), text(row, "level"), text(row, "type"));
        add(&mut allocations, name, of_row(row));
    }
    let names = [
        ("MEMORY_ALLOCATION/MEMORY_ALLOCATION_ALLOCATE", "MEMORY_ALLOCATION/REAL ALLOC"),
        ("MEMORY_ALLOCATION/MEMORY_ALLOCATION_VMEM_ALLOCATE", "MEMORY_ALLOCATION/VIRTUAL ALLOC"),
        ("MEMORY_ALLOCATION/MEMORY_ALLOCATION_FREE", "MEMORY_ALLOCATION/REAL FREE"),
        ("MEMORY_ALLOCATION/MEMORY_ALLOCATION_VMEM_FREE", "MEMORY_ALLOCATION/VIRTUAL FREE"),
        ("SCRATCH_MEMORY/SCRATCH_MEMORY_ALLOC", "SCRATCH_MEMORY/SCRATCH ALLOC"),
        ("SCRATCH_MEMORY/SCRATCH_MEMORY_FREE", "SCRATCH_MEMORY/SCRATCH FREE"),
        ("SCRATCH_MEMORY/SCRATCH_MEMORY_ASYNC_RECLAIM", "SCRATCH_MEMORY/SCRATCH RECLAIM"),
    ];
    let wanted = by_operation(process, &["memory_allocation", "scratch_memory"]);
    let name = |operation: &str| names.iter().find(|(from, _)| *from == operation).unwrap().1.to_owned();
    assert_eq!(allocations, wanted.iter().map(|(from, total)| (name(from), *total)).collect());

    compare_joins(process, shard, source);
}

/// Checks that kernels and copies join their calls by stack id as they do by correlation id.
fn compare_joins(process: &Json, shard: &Contents, source: u32) {
    let id = |record: &Json| record["correlation_id"]["internal"].as_u64().unwrap();
    let mut calls: BTreeMap<u64, String> = BTreeMap::new();
    for record in array(process, ["buffer_records", "hip_api"]).iter().filter(|r| length(r) > 0) {
        calls.insert(id(record), operation(process, record));
    }
    let stack = |row: &Row| int(shard.referred(source, row, "event_id", rocpd::EVENT), "stack_id") as u64;
    let mut regions: BTreeMap<u64, String> = BTreeMap::new();
    for row in shard.rows(source, rocpd::REGION) {
        let event = shard.referred(source, row, "event_id", rocpd::EVENT);
        let category = shard.name(event, "category_id");
        if category.starts_with("HIP") {
            regions.insert(stack(row), format!("{category}/{}", shard.name(row, "name_id")));
        }
    }
    assert_eq!(regions, calls);
    for (kind, table) in [("kernel_dispatch", rocpd::KERNEL_DISPATCH), ("memory_copy", rocpd::MEMORY_COPY)] {
        let wanted: Vec<(i64, u64)> = array(process, ["buffer_records", kind])
            .iter()
            .map(|r| (r["start_timestamp"].as_i64().unwrap(), id(r)))
            .collect();
        let found: Vec<(i64, u64)> =
            shard.rows(source, table).iter().map(|row| (int(row, "start"), stack(row))).collect();
        assert_eq!(found, wanted);
    }
}

/// Returns whether a column has the value of the JSON.
pub(crate) fn same(value: &OwnedValue, json: &Json) -> bool {
    match value {
        OwnedValue::Null => json.is_null(),
        OwnedValue::Int(v) => json.as_i64() == Some(*v),
        OwnedValue::Real(v) => json.as_f64() == Some(*v),
        OwnedValue::Text(v) => json.as_str().is_some_and(|text| text.as_bytes() == &v[..]),
        OwnedValue::Blob(_) => false,
    }
}
