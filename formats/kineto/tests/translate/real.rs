//! Real files: every event is in the table of its phase and category, or is missing for a known reason.

use crate::shard::Contents;
use crate::translated_file;
use rpd_kineto::is_kineto;
use rpd_shard::model::rocpd;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Returns the files of a folder of the shared data; an empty list if the folder does not exist.
fn files(folder: &str) -> Vec<PathBuf> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let shared = std::env::var_os("RPD_SHARED").map_or(repository.join("shared"), PathBuf::from);
    let Ok(entries) = fs::read_dir(shared.join("data/kineto").join(folder)) else {
        eprintln!("SKIPPED: no data/kineto/{folder} in {} (set RPD_SHARED)", shared.display());
        return Vec::new();
    };
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Number of spans and instants of each category, by their table.
type Counts = BTreeMap<(&'static str, String), usize>;

fn counts_of_tree(tree: &Json) -> Counts {
    let mut counts = Counts::new();
    for event in tree["traceEvents"].as_array().unwrap() {
        // An event without a category belongs to the process that it is listed under.
        let category = event["cat"].as_str().or(event["pid"].as_str()).unwrap_or_default();
        let table = match (event["ph"].as_str().unwrap(), category) {
            ("X", "kernel" | "gpu_memset") => "dispatch",
            ("X", "gpu_memcpy") => "copy",
            ("X", _) => "region",
            ("i", _) => "sample",
            _ => continue,
        };
        *counts.entry((table, category.to_owned())).or_default() += 1;
    }
    counts
}

fn counts_of_rows(contents: &Contents) -> Counts {
    let tables = [
        ("dispatch", rocpd::KERNEL_DISPATCH),
        ("copy", rocpd::MEMORY_COPY),
        ("region", rocpd::REGION),
        ("sample", rocpd::SAMPLE),
    ];
    let mut counts = Counts::new();
    for (name, table) in tables {
        for row in contents.rows(table) {
            let event = contents.referred(row, "event_id", rocpd::EVENT);
            *counts.entry((name, contents.name(event, "category_id"))).or_default() += 1;
        }
    }
    counts
}

/// Returns the names of the rank's threads from the metadata of a file. The last name of a thread counts.
fn thread_names(tree: &Json, pid: i64) -> BTreeMap<i64, String> {
    let events = tree["traceEvents"].as_array().unwrap().iter();
    let named = events.filter(|event| event["name"] == "thread_name" && event["pid"] == pid);
    let name =
        |event: &Json| Some((event["tid"].as_i64()?, event["args"]["name"].as_str()?.trim().to_owned()));
    named.filter_map(name).collect()
}

#[test]
fn events_of_real_files_are_rows_of_their_categories() {
    for path in files("real").into_iter().chain(files("ddp2")) {
        assert!(is_kineto(&path), "{}", path.display());
        let mut text = String::new();
        let _ = flate2::read::GzDecoder::new(File::open(&path).unwrap()).read_to_string(&mut text).unwrap();
        let tree: Json = serde_json::from_str(&text).unwrap();
        let (contents, translation) = translated_file(&path).unwrap();
        assert_eq!(counts_of_rows(&contents), counts_of_tree(&tree), "{}", path.display());
        assert_eq!(translation.elements, tree["traceEvents"].as_array().unwrap().len() as u64);
        assert_eq!((translation.total_lost(), contents.losses.len()), (0, 0), "{:?}", translation.warnings);
        assert_eq!(contents.process.rank.map(Json::from), tree["distributedInfo"].get("rank").cloned());
        let names = thread_names(&tree, contents.process.pid.into());
        for row in contents.rows(rocpd::INFO_THREAD) {
            if let Some(name) = names.get(&crate::int(row, "tid")) {
                assert_eq!(*name, crate::text(row, "name"), "{}", path.display());
            }
        }
    }
}
