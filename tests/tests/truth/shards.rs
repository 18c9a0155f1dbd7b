use rpd_tests::harness::{Database, losses, rpd_merge};
use rpd_tests::truth::{DroppedCalls, Scenario, ScenarioKind, ScenarioSize, write_scenario};

fn merged(kind: ScenarioKind, dropped: &[DroppedCalls]) -> (Scenario, Database) {
    let size = ScenarioSize { ranks: 5, subject: 2, steps: 20, ..ScenarioSize::drawn(kind, 3) };
    let scenario = Scenario::sized(kind, size);
    let folder = tempfile::tempdir().unwrap();
    let run = write_scenario(&scenario, dropped, folder.path()).unwrap();
    let _ = rpd_merge().arg(&run).run().success();
    let database = Database::open(&run.join("trace.db"));
    (scenario, database)
}

/// Number of regions with a name.
fn regions(database: &Database, name: &str) -> i64 {
    let names = "(SELECT id FROM rocpd_string WHERE string = ";
    database.count(&format!("rocpd_region WHERE name_id IN {names}'{name}')"))
}

#[test]
fn a_scenario_becomes_a_database() {
    let (scenario, database) = merged(ScenarioKind::Stencil, &[]);
    let all = i64::from(scenario.size.ranks * scenario.size.steps);
    for (name, count) in [("step", 1), ("update", 1), ("MPI_Irecv", 2), ("MPI_Isend", 2), ("MPI_Waitall", 1)]
    {
        assert_eq!(regions(&database, name), count * all, "{name}");
    }
    assert_eq!(regions(&database, "MPI_Init"), i64::from(scenario.size.ranks));
    assert!(losses(&database).is_empty());
}

#[test]
fn dropped_calls_are_in_the_loss_ledger() {
    let dropped = [DroppedCalls { rank: 1, calls: 10..15 }];
    let (scenario, database) = merged(ScenarioKind::Chain, &dropped);
    let all = i64::from(scenario.size.ranks * scenario.size.steps);
    assert_eq!(regions(&database, "step"), all);
    assert_eq!(losses(&database), [(Some("mpi_call".to_owned()), "ring_full".to_owned(), 5)]);
}
