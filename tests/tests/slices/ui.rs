//! Perfetto's own UI opens a slice, and draws it as it is meant.

use super::{RunFolder, Subject, rpd_merge};
use rpd_tests::harness::{PerfettoUi, repository};
use rpd_tests::synthetic::SyntheticRun;
use std::fs;

/// Of each rank in UIs with nested tracks: threads, then GPUs with their streams in order, copies, allocations, and the memory they add up to.
const TREE: &str = "\
Global Track Events
  this file
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

/// The same in v47, which has one level below a process, and no numbers of named threads.
const TREE_OF_V47: &str = "\
Misc Global Tracks
  this file
  Clock Snapshots
rank 0 (gpu000) 4000
  main
  Thread 400001
  GPU 0 GRBM_GUI_ACTIVE
  GPU 0 memory allocated
  GPU 0 SQ_WAVES
  allocations
  GPU 0 allocations
  GPU 0 copies
  GPU 0 Stream 2
  GPU 0 Stream 3
  GPU 1 Default Stream
  GPU 1 Stream 0
  GPU 1 Stream 1
  GPU 1 Stream 2
  GPU 1 Stream 3
rank 1 (gpu001) 4010
  main
  Thread 401001
  GPU 0 GRBM_GUI_ACTIVE
  GPU 0 memory allocated
  GPU 0 SQ_WAVES
  allocations
  GPU 0 allocations
  GPU 0 copies
  GPU 0 Default Stream
  GPU 0 Stream 2
  GPU 1 Default Stream
  GPU 1 Stream 1
  GPU 1 Stream 2
  GPU 1 Stream 3
";

#[test]
fn the_ui_of_perfetto_draws_the_tracks_of_a_slice_in_order() {
    let run =
        RunFolder::new(&SyntheticRun { nodes: 2, ranks_per_node: 1, threads: 2, ..SyntheticRun::default() });
    let subject = Subject::of(std::slice::from_ref(&run.path));
    let slices = subject.sliced(rpd_merge(), "ui", &["--split-by-time", "3"], false);
    let pictures = repository().join("target/ci");
    fs::create_dir_all(&pictures).unwrap();
    for ui in PerfettoUi::all("a slice in the UI of Perfetto") {
        let version = ui.version();
        let picture = pictures.join(format!("perfetto-ui-{}.png", version.split('.').next().unwrap()));
        let opened = ui.open(&slices.files[1].0, &picture);
        assert_eq!(opened.errors, Vec::<String>::new(), "{version}");
        let events = &slices.index["files"][1]["events"];
        let drawn =
            ["slices", "continued", "earlier_calls", "instants"].map(|what| events[what].as_u64().unwrap());
        // The note on the file is a slice, too.
        assert!(opened.slices.is_none_or(|slices| slices == drawn.iter().sum::<u64>() + 1), "{version}");
        let tree = if version.starts_with("v47") { TREE_OF_V47 } else { TREE };
        assert_eq!(opened.tree(), tree, "{version}");
    }
}
