//! Perfetto's own UI opens a slice, and draws it as it is meant.

use super::{RunFolder, Subject, rpd_merge};
use rpd_tests::harness::{PerfettoUi, repository};
use rpd_tests::synthetic::SyntheticRun;
use std::fs;

/// Of each rank: threads, then GPUs with their streams in order, copies, allocations, and the memory they add up to.
const TREE: &str = "\
rank 0 (gpu000) 4000
  main 4000
    main 4000
  Thread 400001
    Thread 400001
  GPU 0
    GPU 0 Stream 2
    GPU 0 Stream 3
    GPU 0 copies
    GPU 0 allocations
    GPU 0 memory allocated
    GPU 0 SQ_WAVES
    GPU 0 GRBM_GUI_ACTIVE
  GPU 1
    GPU 1 Default Stream
    GPU 1 Stream 0
    GPU 1 Stream 1
    GPU 1 Stream 2
    GPU 1 Stream 3
  allocations
rank 1 (gpu001) 4010
  main 4010
    main 4010
  Thread 401001
    Thread 401001
  GPU 0
    GPU 0 Default Stream
    GPU 0 Stream 2
    GPU 0 copies
    GPU 0 allocations
    GPU 0 memory allocated
    GPU 0 SQ_WAVES
    GPU 0 GRBM_GUI_ACTIVE
  GPU 1
    GPU 1 Default Stream
    GPU 1 Stream 1
    GPU 1 Stream 2
    GPU 1 Stream 3
  allocations
";

#[test]
fn the_ui_of_perfetto_draws_the_tracks_of_a_slice_in_order() {
    let Some(ui) = PerfettoUi::newest("a slice in the UI of Perfetto") else { return };
    let run =
        RunFolder::new(&SyntheticRun { nodes: 2, ranks_per_node: 1, threads: 2, ..SyntheticRun::default() });
    let subject = Subject::of(std::slice::from_ref(&run.path));
    let slices = subject.sliced(rpd_merge(), "ui", &["--split-by-time", "3"], false);
    let pictures = repository().join("target/ci");
    fs::create_dir_all(&pictures).unwrap();
    let opened = ui.open(&slices.files[1].0, &pictures.join("perfetto-ui.png"));
    assert_eq!(opened.errors, Vec::<String>::new());
    let events = &slices.index["files"][1]["events"];
    let drawn: u64 = ["slices", "continued", "earlier_calls", "instants"]
        .iter()
        .map(|what| events[what].as_u64().unwrap())
        .sum();
    assert_eq!(opened.slices, drawn);
    assert_eq!(opened.tree(), TREE);
}
