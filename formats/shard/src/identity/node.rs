//! Nodes that a file does not describe completely.

use crate::record::Node;
use twox_hash::XxHash3_64;

/// Maximum number of processes that the name of an unknown node lists.
const MAX_NAMED_PROCESSES: usize = 2;

/// Returns whether a host name is empty or local (such as `localhost`), so that it does not distinguish hosts.
pub fn is_no_name(hostname: &str) -> bool {
    let local = |name: &str| name.eq_ignore_ascii_case(hostname.trim());
    ["", "localhost", "localhost.localdomain", "localhost4", "localhost6", "(none)"].into_iter().any(local)
}

/// Returns the boot of a node of which only the machine is known. The machine stands for the boot, since no
/// profiler's clock continues over a boot. The result does not depend on the format or on the number of merges.
pub fn unknown_boot(machine: &str) -> String {
    format!("unknown:{machine}")
}

/// Returns the boot of a node by machine id and host name. Both are used because cloned images share the machine
/// id. Returns `None` if the node has neither.
pub fn boot_of_machine(node: &Node) -> Option<String> {
    let (mut machine, mut name) = (node.machine_id.as_str(), node.hostname.as_str());
    if is_no_name(machine) && is_no_name(name) {
        (machine, name) = ("", "");
    }
    match (machine, name) {
        ("", "") => None,
        ("", name) => Some(unknown_boot(name)),
        // A merge names a machine without an id by its host name.
        (machine, name) if name.is_empty() || name.starts_with(machine) => Some(unknown_boot(machine)),
        (machine, name) => Some(unknown_boot(&format!("{machine}@{name}"))),
    }
}

/// Returns the node of a file of one process (pid and first time, ns). If the file describes the node, its boot is
/// added; otherwise the node gets a generated name.
pub fn node_of_file(described: Node, process: (i32, i64)) -> Node {
    match boot_of_machine(&described) {
        Some(boot_id) => Node { boot_id, ..described },
        None => unnamed_node(0, &[process]),
    }
}

/// Returns a generated node for a file that names none.
///
/// Whether two such files come from the same node is unknown. Therefore each gets its own node, named by its
/// processes (pid and first time, ns). `number` distinguishes several nodes of one file.
pub fn unnamed_node(number: i64, processes: &[(i32, i64)]) -> Node {
    let mut text = if number == 0 { String::new() } else { format!("{number}: ") };
    processes.iter().for_each(|(pid, first_seen)| text += &format!("{pid} {first_seen} "));
    let machine_id = format!("unknown-{:08x}", XxHash3_64::oneshot(text.as_bytes()) as u32);
    let pids: Vec<String> =
        processes.iter().take(MAX_NAMED_PROCESSES).map(|(pid, _)| pid.to_string()).collect();
    let more = if processes.len() > MAX_NAMED_PROCESSES { ", ..." } else { "" };
    let node = if number == 0 { String::new() } else { format!("node {number}, ") };
    let hostname = match pids.as_slice() {
        [] => machine_id.clone(),
        pids => format!("{machine_id} ({node}pid {}{more})", pids.join(", ")),
    };
    Node { boot_id: unknown_boot(&machine_id), machine_id, hostname, ..Node::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unnamed_nodes_differ_by_their_processes_and_numbers() {
        let (a, b) = (unnamed_node(0, &[(70, 5)]), unnamed_node(0, &[(70, 6)]));
        let (c, d) =
            (unnamed_node(3, &[(70, 5), (71, 5), (72, 5)]), unnamed_node(4, &[(70, 5), (71, 5), (72, 5)]));
        for (one, other) in [(&a, &b), (&c, &d), (&a, &c)] {
            assert!(
                one.machine_id != other.machine_id
                    && one.boot_id != other.boot_id
                    && one.hostname != other.hostname
            );
        }
        assert!(
            a.hostname.ends_with(" (pid 70)") && c.hostname.ends_with(" (node 3, pid 70, 71, ...)"),
            "{c:?}"
        );
        assert_eq!(a, unnamed_node(0, &[(70, 5)]));
    }

    #[test]
    fn the_boot_of_a_machine_is_the_same_once_its_row_is_read_again() {
        let node = unnamed_node(0, &[(1, 2)]);
        assert_eq!(boot_of_machine(&node), Some(node.boot_id.clone()));
        let named = Node { hostname: "n1".into(), ..Node::default() };
        assert_eq!(boot_of_machine(&named), Some(unknown_boot("n1")));
        let of_file = node_of_file(named.clone(), (1, 2));
        assert_eq!((of_file.boot_id, node_of_file(Node::default(), (1, 2))), (unknown_boot("n1"), node));
        let merged = Node { machine_id: "n1".into(), ..named };
        assert_eq!(boot_of_machine(&merged), Some(unknown_boot("n1")));
        assert_eq!(boot_of_machine(&Node::default()), None);
    }

    #[test]
    fn a_name_that_every_host_has_is_none() {
        let named = |machine: &str, host: &str| Node {
            machine_id: machine.into(),
            hostname: host.into(),
            ..Node::default()
        };
        for host in ["", "localhost", "LocalHost", "localhost.localdomain"] {
            let of = |process| node_of_file(named(host, host), process);
            assert_eq!(of((1, 2)), unnamed_node(0, &[(1, 2)]), "{host}");
            assert_ne!(of((1, 2)).boot_id, of((1, 3)).boot_id, "{host}");
        }
        // A machine id is more reliable than a host name.
        assert_eq!(boot_of_machine(&named("m", "localhost")), Some(unknown_boot("m@localhost")));
        assert_eq!(boot_of_machine(&named("", "localhost7")), Some(unknown_boot("localhost7")));
    }

    #[test]
    fn cloned_machines_have_different_boots() {
        let clone = |name: &str| {
            let node = Node { machine_id: "m".into(), hostname: name.into(), ..Node::default() };
            boot_of_machine(&node)
        };
        assert_eq!(clone("n1"), clone("n1"));
        assert_ne!(clone("n1"), clone("n2"));
    }
}
