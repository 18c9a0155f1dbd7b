//! Names that a program chose to confuse terminals and readers.

use crate::program::{json, printed};
use crate::runs::{kept_shards, merge};
use rusqlite::Connection;

#[test]
fn hostile_names_change_no_line_and_are_cut_in_the_middle() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("run.db");
    merge(&[], &kept_shards()[0], &database);
    let long = format!("begin{}end", "x".repeat(1 << 20));
    let names = ["a,\"b\"\r\n\x1b[31m\u{9b}1m\u{7}|c", long.as_str(), "", "=1+1\t<script>"];
    let connection = Connection::open(&database).unwrap();
    let guid: String = connection
        .query_row("SELECT value FROM rocpd_metadata WHERE tag = 'uuid'", [], |row| row.get(0))
        .unwrap();
    let ids: Vec<i64> = connection
        .prepare("SELECT DISTINCT name_id FROM rocpd_region ORDER BY 1 LIMIT 4")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(ids.len(), names.len());
    for (id, name) in ids.iter().zip(names) {
        let sql = format!("UPDATE \"rocpd_string{guid}\" SET string = ?1 WHERE id = ?2");
        assert_eq!(connection.execute(&sql, rusqlite::params![name, id]).unwrap(), 1);
    }
    drop(connection);
    let text = printed(&["summary", "--top", "0"], &database);
    assert!(text.chars().all(|character| character == '\n' || !character.is_control()), "{text:?}");
    assert!(
        text.contains("a,\"b\"\\r\\n\\u{1b}[31m\\u{9b}1m\\u{7}|c") && text.contains("=1+1 <script>"),
        "{text}"
    );
    let cut = text.lines().find(|line| line.contains("beginx")).unwrap();
    assert!(cut.contains("x...x") && cut.contains("xend") && cut.len() < 300, "{cut}");
    let object = json(&["summary"], &database);
    let rows = object["summary"].as_array().unwrap();
    let is_there = |name: &str| rows.iter().any(|row| row["name"] == name);
    assert!(is_there(names[0]) && is_there("") && is_there(names[3]));
    assert!(rows.iter().any(|row| row["name"].as_str().unwrap_or_default().len() == 1 << 14));
    let csv = printed(&["summary", "--format", "csv"], &database);
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let fields: Vec<String> = reader.records().map(|line| line.unwrap()[1].to_owned()).collect();
    assert!(fields.iter().any(|field| field == names[0]), "{fields:?}");
    let markdown = printed(&["summary", "--format", "md", "--top", "0"], &database);
    assert!(markdown.contains("&lt;script>") && !markdown.contains('\x1b'));
}
