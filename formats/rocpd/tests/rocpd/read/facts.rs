//! Tests of the facts about processes and nodes.

use super::{empty, make, some_rows};
use crate::real::{Outcome, real_databases};
use crate::writer::GUID;
use rpd_rocpd::read::{Database, ProcessFacts};

#[test]
fn ranks_of_real_databases_are_those_of_their_environments() -> Outcome {
    let dir = tempfile::tempdir()?;
    let paths = real_databases(dir.path())?;
    for (rank, path) in (0..).zip(&paths) {
        let database = Database::open(path)?;
        let set = &database.table_sets()[0];
        let [process] = set.processes.as_slice() else { return Err("not one process".into()) };
        assert_eq!((process.rank, process.rank_from.as_deref()), (Some(rank), Some("SLURM_PROCID")));
        assert_eq!(process.key, i64::from(10_000 + rank));
        let [(key, node)] = set.nodes.as_slice() else { return Err("not one node".into()) };
        assert_eq!((process.nid, &node.hostname), (*key, &format!("node{:03}", rank / 2)));
        assert_eq!(node.boot_id, "");
    }
    Ok(())
}

/// Returns the facts of processes with these environments and extdata.
fn facts_of(processes: &[(&str, &str)]) -> Outcome<Vec<ProcessFacts>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("a.db");
    let mut sql = empty(&GUID, "3.0.0");
    for (environment, extdata) in processes {
        sql += &format!(
            "INSERT INTO \"rocpd_info_process{}\" (nid, pid, environment, extdata) VALUES (1, 5, '{environment}', '{extdata}');",
            GUID.suffix()
        );
    }
    make(&path, &sql)?;
    Ok(Database::open(&path)?.table_sets()[0].processes.clone())
}

/// Environment, extdata, and the expected rank, size and variable.
type Case = (&'static str, &'static str, Option<u32>, Option<u32>, Option<&'static str>);

#[test]
fn the_rank_is_found_in_extdata_or_in_the_environment() -> Outcome {
    let ours = r#"{"rpd": {"rank": 5, "size": 8, "local_rank": 1, "rank_from": "PMIX_RANK"}}"#;
    let no_rank = r#"{"rpd": {"rank": null, "size": null}}"#;
    let slurm = r#"{"SLURM_PROCID": "2", "PMIX_RANK": "2"}"#;
    let mpirun = r#"{"SLURM_PROCID": "0", "PMIX_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}"#;
    let torchrun = r#"{"RANK": "6", "WORLD_SIZE": "8", "LOCAL_RANK": "2"}"#;
    let cases: [Case; 9] = [
        (slurm, ours, Some(5), Some(8), Some("PMIX_RANK")),
        (slurm, no_rank, None, None, None),
        (slurm, "{}", Some(2), None, Some("SLURM_PROCID")),
        (mpirun, "{}", Some(3), Some(4), Some("PMIX_RANK")),
        (torchrun, "{}", Some(6), Some(8), Some("RANK")),
        (torchrun, "no json", Some(6), Some(8), Some("RANK")),
        ("no json", "{}", None, None, None),
        ("[1]", "[]", None, None, None),
        (r#"{"RANK": ["5"]}"#, r#"{"rpd": 7}"#, None, None, None),
    ];
    let found = facts_of(&cases.map(|case| (case.0, case.1)))?;
    for ((environment, extdata, rank, size, from), found) in cases.iter().zip(&found) {
        let given = (found.rank, found.size, found.rank_from.as_deref());
        assert_eq!(given, (*rank, *size, *from), "{environment} {extdata}");
    }
    assert_eq!(found.len(), cases.len());
    Ok(())
}

#[test]
fn processes_and_nodes_are_told_with_their_keys() -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("a.db");
    make(&path, &(empty(&GUID, "3.0.0") + &some_rows(&GUID)))?;
    let database = Database::open(&path)?;
    let wanted = ProcessFacts {
        key: 4242,
        nid: 77,
        pid: 4242,
        rank: Some(3),
        size: Some(4),
        local_rank: None,
        rank_from: Some("SLURM_PROCID".to_owned()),
        worker: false,
        start: Some(5),
        end: Some(9000),
    };
    assert_eq!(database.table_sets()[0].processes, [wanted]);
    assert_eq!(database.table_sets()[0].nodes[0].0, 77);
    assert_eq!(database.table_sets()[0].nodes[0].1.machine_id, "m-1");
    Ok(())
}
