//! Tables that only a `.rpd` has: they come along under names that AMD's strict validators let pass.

use rpd_rocpd::verify::check;
use rpd_tests::harness::{Database, rpd_merge};
use rpd_tests::synthetic::{SyntheticRun, write_rocpd};
use rusqlite::Connection;
use std::path::{Path, PathBuf};

/// What there is to know of the rows of the table of layers; `BEGIN` is how its name begins.
const LAYERS: &str = "SELECT r.start, s.string, l.op, l.note FROM BEGINlayer l
     JOIN rocpd_region r ON r.id = l.api_id JOIN rocpd_string s ON s.id = r.name_id ORDER BY 1, 3";

fn layers(path: &Path, begin: &str) -> Vec<Vec<String>> {
    Database::open(path).rows(&LAYERS.replace("BEGIN", begin))
}

fn merge(arguments: &[&str], input: &Path, output: &Path) -> rpd_tests::harness::JobOutcome {
    rpd_merge().args(["--force"]).args(arguments).arg("-o").arg(output).arg(input).run().success()
}

fn change(path: &Path, sql: &str) {
    let conn = Connection::open(path).unwrap();
    conn.execute_batch(sql).unwrap();
    conn.close().unwrap();
}

/// A `.rpd` with a table of its own.
fn rpd_with_layers(folder: &Path) -> PathBuf {
    let run = SyntheticRun { events_per_rank: 100, ..SyntheticRun::default() };
    let databases = write_rocpd(&run.plan(), &folder.join("databases")).unwrap();
    let rpd = folder.join("job.rpd");
    let _ = merge(&["--format", "rpd"], &databases[0], &rpd);
    change(
        &rpd,
        "CREATE TABLE ext_layer (id INTEGER PRIMARY KEY, api_id INTEGER REFERENCES rocpd_api (id), op TEXT, note);
         INSERT INTO ext_layer (api_id, op, note) SELECT id, 'conv' || id, x'00ff' FROM rocpd_api ORDER BY id LIMIT 5;",
    );
    rpd
}

/// A merge as earlier releases made it.
fn call_by_former_name(database: &Path) {
    let uuid = Database::open(database).metadata()["uuid"][0].clone();
    change(
        database,
        &format!(
            "DROP VIEW rpd_ext_layer;
             ALTER TABLE \"rpd_ext_layer{uuid}\" RENAME TO \"rocpd_ext_layer{uuid}\";
             CREATE VIEW rocpd_ext_layer AS SELECT * FROM \"rocpd_ext_layer{uuid}\";
             UPDATE \"rocpd_info_process{uuid}\" SET extdata = replace(extdata, '\"rpd_ext_', '\"rocpd_ext_');"
        ),
    );
}

#[test]
fn tables_that_only_a_rpd_has_are_no_tables_of_rocpd_in_the_output() {
    let folder = tempfile::tempdir().unwrap();
    let input = rpd_with_layers(folder.path());
    let output = folder.path().join("out.db");
    let outcome = merge(&["--strict", "--verify"], &input, &output);
    for told in ["foreign_key_check and AMD's rules: ok", "beside RocPD's tables: table rpd_ext_layer_"] {
        assert!(outcome.stderr.contains(told), "{told}: {outcome}");
    }
    let report = check(&output).unwrap();
    assert_eq!((report.problems, report.refused_by_amd), (vec![], vec![]));
    assert_eq!(report.extras.len(), 1, "{:?}", report.extras);
    let own = layers(&output, "rpd_ext_");
    assert_eq!(own.len(), 5);
    let _ = merge(&["--strict", "--verify", "--layout", "partitioned"], &input, &output);
    assert_eq!(layers(&output, "rpd_ext_"), own);
}

#[test]
fn tables_of_a_rpd_in_a_merge_of_an_earlier_release_get_the_names_of_today() {
    let folder = tempfile::tempdir().unwrap();
    let input = rpd_with_layers(folder.path());
    let [former, again, shown] =
        ["former.db", "again.db", "again.json.gz"].map(|name| folder.path().join(name));
    let _ = merge(&["--strict"], &input, &former);
    let expected = layers(&former, "rpd_ext_");
    call_by_former_name(&former);
    assert_eq!(layers(&former, "rocpd_ext_"), expected);
    assert!(!check(&former).unwrap().is_clean(), "AMD's validators refuse it");
    let _ = merge(&["--strict", "--verify"], &former, &again);
    assert_eq!(layers(&again, "rpd_ext_"), expected);
    assert_eq!(check(&again).unwrap().problems, []);
    let former_names = "SELECT count(*) FROM rocpd_info_process WHERE instr(extdata, 'rocpd_ext_')";
    assert_eq!(Database::open(&again).number(former_names), 0);
    let _ = merge(&["--format", "chrome-json"], &former, &shown);
}
