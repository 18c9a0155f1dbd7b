//! Reads tables like those that omnistat exports, intact and damaged.
#![allow(missing_docs, clippy::unwrap_used)]

use proptest::prelude::*;
use rpd_omnistat::{is_omnistat, read_processes, translate};
use rpd_shard::Shard;
use rpd_shard::file::{BlockKind, Owner};
use rpd_shard::model::{OwnedValue, TableId, rocpd};
use rpd_shard::record::{Clock, RunIdentity};
use rpd_translator::{TranslateError, Translation};

const TABLE: &str = "\
metric,rocm_utilization_percentage,rocm_utilization_percentage,rocm_utilization_percentage,omnistat_network_rx_bytes
instance,node01:8001,node01:8001,node02,node01:8001
card,0,1,0,
interface,,,,hsn0
timestamp,,,,
2025-01-01 10:00:00,100.0,97.5,,1024
2025-01-01 10:00:01.500,99,,3e1,
";

type Row = Vec<(String, OwnedValue)>;

/// Returns the rows of one table of a node.
fn rows(shard: &Shard, source: u32, table: TableId) -> Vec<Row> {
    let mut all = Vec::new();
    for block in shard.blocks() {
        if block.header.kind != BlockKind::Rows(table) || block.header.source != source {
            continue;
        }
        let rows = shard.rows(block).unwrap();
        for i in 0..rows.len {
            let cells = rows.table.columns.iter().zip(&rows.columns);
            all.push(cells.map(|(column, cells)| (column.name.clone(), cells.get(i).to_owned())).collect());
        }
    }
    all
}

fn get(row: &Row, column: &str) -> OwnedValue {
    row.iter().find(|(name, _)| name == column).unwrap().1.clone()
}

fn text(row: &Row, column: &str) -> String {
    match get(row, column) {
        OwnedValue::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
        other => panic!("{column}: {other:?}"),
    }
}

fn int(row: &Row, column: &str) -> i64 {
    match get(row, column) {
        OwnedValue::Int(value) => value,
        other => panic!("{column}: {other:?}"),
    }
}

fn try_translated(table: &[u8]) -> Result<(Vec<u8>, Translation), TranslateError> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), table).unwrap();
    let run = RunIdentity {
        run_id: "r".into(),
        run_id_from: "self".into(),
        rank: None,
        size: None,
        version: "0".into(),
    };
    let mut bytes = Vec::new();
    translate(file.path(), &mut bytes, &Owner::unknown(run)).map(|translation| (bytes, translation))
}

/// Returns the values of a node: counter, unit, GPU, time and value.
fn values(shard: &Shard, source: u32) -> Vec<(String, String, Option<i64>, i64, f64)> {
    let samples = rows(shard, source, rocpd::SAMPLE);
    let counters = rows(shard, source, rocpd::INFO_PMC);
    let agents = rows(shard, source, rocpd::INFO_AGENT);
    let values = rows(shard, source, rocpd::PMC_EVENT).into_iter().map(|row| {
        let counter = &counters[int(&row, "pmc_id") as usize - 1];
        let gpu = match get(counter, "agent_id") {
            OwnedValue::Int(agent) => Some(int(&agents[agent as usize - 1], "type_index")),
            _ => None,
        };
        let sample = samples.iter().find(|sample| get(sample, "event_id") == get(&row, "event_id")).unwrap();
        let OwnedValue::Real(value) = get(&row, "value") else { panic!("no number") };
        (text(counter, "name"), text(counter, "units"), gpu, int(sample, "timestamp"), value)
    });
    values.collect()
}

#[test]
fn times_in_whole_seconds_are_told() {
    let (_, told) = try_translated(TABLE.replace(".500", "").as_bytes()).unwrap();
    assert!(told.notes.iter().any(|line| line.contains("whole seconds")) && told.warnings.is_empty());
    assert_eq!(try_translated(TABLE.as_bytes()).unwrap().1.notes, [""; 0]);
}

#[test]
fn values_are_those_of_their_node_and_gpu() {
    let (bytes, told) = try_translated(TABLE.as_bytes()).unwrap();
    assert_eq!((told.warnings.len(), told.lost.len()), (0, 0));
    let shard = Shard::from_memory("t", &bytes).unwrap();
    let (first, second) = (1_735_725_600_000_000_000, 1_735_725_601_500_000_000);
    let busy =
        |gpu, at, value| ("rocm_utilization_percentage".to_owned(), "%".to_owned(), Some(gpu), at, value);
    let received = "omnistat_network_rx_bytes{interface=hsn0}".to_owned();
    // An empty label cell repeats the previous label.
    let received = |at| (received.clone(), "bytes".to_owned(), Some(0), at, 1024.0);
    assert_eq!(
        values(&shard, 1),
        [busy(0, first, 100.0), busy(1, first, 97.5), received(first), busy(0, second, 99.0)]
    );
    assert_eq!(values(&shard, 2), [busy(0, second, 30.0)]);
    let nodes: Vec<_> = shard.processes.values().map(|process| process.node.hostname.clone()).collect();
    assert_eq!(nodes, ["node01", "node02"]);
    let process = &shard.processes[&1];
    assert_eq!(
        (process.clock, process.first_seen, process.last_seen),
        (Clock::Realtime, first, Some(second))
    );
    // One event per node and line, whatever its counters.
    assert_eq!(rows(&shard, 1, rocpd::EVENT).len(), 2);
}

#[test]
fn what_cannot_be_kept_is_in_the_ledger() {
    let table = format!("{TABLE}yesterday,1,2,3,4\n2025-01-01 10:00:03,1,x,inf,4,5\n2025-01-01 10:00:04,1");
    let (bytes, told) = try_translated(table.as_bytes()).unwrap();
    let wanted = [("lines", 2), ("values that are not numbers", 2), ("values without a column", 1)];
    assert_eq!(told.lost, wanted.map(|(what, count)| (what.to_owned(), count)).into());
    assert!(told.warnings[0].contains("line 8 "), "{:?}", told.warnings);
    let shard = Shard::from_memory("t", &bytes).unwrap();
    let lost: u64 = shard.ledger.iter().flat_map(|ledger| &ledger.losses).filter_map(|loss| loss.rows).sum();
    assert_eq!((lost, values(&shard, 1).len()), (5, 6));
}

#[test]
fn tables_are_known_by_their_labels() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let known = |text: &str| {
        std::fs::write(&path, text).unwrap();
        is_omnistat(&path)
    };
    assert!(known(TABLE) && known(&format!("metric{}", ",rocm_utilization_percentage".repeat(10_000))));
    assert!(!known("metric,value\na,1\n") && !known("metric,value") && !known("") && !known("a,b\n"));
    assert!(!is_omnistat(&folder.path().join("missing")));
    std::fs::write(&path, TABLE).unwrap();
    assert_eq!(read_processes(&path).unwrap().len(), 2);
}

#[test]
fn a_table_without_values_is_refused_in_words() {
    for (table, word) in
        [("metric,a\ninstance,n\n", "line of times"), ("timestamp\n", "no columns"), ("", "line of times")]
    {
        let error = try_translated(table.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_table_is_a_panic(cut in 0usize..400, at in 0usize..400, byte: u8, more in ".{0,40}") {
        let mut table = TABLE.as_bytes().to_vec();
        let at = at % table.len();
        table[at] = byte;
        table.truncate(cut);
        table.extend(more.as_bytes());
        if let Ok((bytes, _)) = try_translated(&table) {
            prop_assert!(Shard::from_memory("t", &bytes).unwrap().complete());
        }
    }
}
