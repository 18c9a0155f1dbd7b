//! Statements of a file are kept unchanged: categories of old releases, names of copies, missing sizes.

use crate::shard::{json, text};
use crate::{of_events, translated};
use rpd_shard::model::rocpd;
use serde_json::{Value as Json, json};

/// Builds a call, its kernel, a copy and a fill, in these categories. `stream` names the thread of a stream.
fn launched([operator, runtime, kernel, copy, fill]: [&str; 5], flow: &str, stream: &str) -> String {
    let events = [
        format!(
            r#"{{"ph":"X","cat":"{operator}","name":"aten::add","pid":70,"tid":"71","ts":10,"dur":20,"args":{{"External id":5}}}}"#
        ),
        format!(
            r#"{{"ph":"X","cat":"{runtime}","name":"cudaLaunchKernel","pid":70,"tid":"71","ts":11,"dur":1,"args":{{"correlation":99,"external id":5}}}}"#
        ),
        format!(r#"{{"ph":"s","id":99,"pid":70,"tid":71,"ts":11,{flow}}}"#),
        format!(
            r#"{{"ph":"X","cat":"{kernel}","name":"gemm","pid":2,"tid":"{stream}","ts":20,"dur":3,"args":{{"correlation":99,"external id":5,"device":2,"stream":7,"grid":[8,4,1],"block":[256,1,1]}}}}"#
        ),
        format!(r#"{{"ph":"f","id":99,"pid":2,"tid":"{stream}","ts":20,{flow},"bp":"e"}}"#),
        format!(
            r#"{{"ph":"X","cat":"{copy}","name":"Memcpy HtoD (Pinned -> Device)","pid":2,"tid":"{stream}","ts":30,"dur":1,"args":{{"correlation":100,"device":2,"stream":7,"bytes":4096}}}}"#
        ),
        format!(
            r#"{{"ph":"X","cat":"{fill}","name":"Memset (Device)","pid":2,"tid":"{stream}","ts":40,"dur":1,"args":{{"correlation":101,"device":2,"stream":7,"bytes":64}}}}"#
        ),
    ];
    of_events(
        "\"baseTimeNanoseconds\": 1763800000000000000, ",
        &events.iter().map(String::as_str).collect::<Vec<_>>(),
    )
}

const NEW: [&str; 5] = ["cpu_op", "cuda_runtime", "kernel", "gpu_memcpy", "gpu_memset"];

#[test]
fn categories_of_old_releases_are_read_as_those_of_today_and_keep_their_names() {
    let today = translated(&launched(NEW, r#""cat":"ac2g","name":"ac2g""#, "7")).0;
    for (old, flow) in [
        (["Operator", "Runtime", "Kernel", "Memcpy", "Memset"], r#""cat":"async","name":"launch""#),
        (
            ["Operator", "Runtime", "Kernel", "Memcpy", "Memset"],
            r#""cat":"async_gpu","name":"cudaLaunchKernel""#,
        ),
        (["operator", "runtime", "kernel", "memcpy", "memset"], r#""cat":"async_gpu","name":"async_gpu""#),
    ] {
        let (contents, translation) = translated(&launched(old, flow, "stream 7"));
        assert_eq!(
            (&translation.warnings[..], &translation.ignored),
            (&[][..], &Default::default()),
            "{flow}"
        );
        let (mut found, wanted) = (contents.spans(), today.spans());
        let categories: Vec<String> = found.iter().map(|span| span.category.clone()).collect();
        assert_eq!(categories, old);
        found.iter_mut().zip(NEW).for_each(|(span, category)| span.category = category.to_owned());
        assert_eq!(found, wanted);
        let count = |contents: &crate::shard::Contents| {
            [rocpd::ARG, rocpd::INFO_THREAD, rocpd::INFO_STREAM].map(|table| contents.rows(table).len())
        };
        assert_eq!(count(&contents), count(&today), "{flow}");
        assert_eq!(contents.process.pid, 70);
    }
}

#[test]
fn a_copy_keeps_the_name_that_the_file_gives_it() {
    let name = "Memcpy HtoD (Pinned -> Device)";
    let (contents, _) = translated(&launched(NEW, r#""cat":"ac2g","name":"ac2g""#, "7"));
    let [copy] = contents.rows(rocpd::MEMORY_COPY) else { panic!("one copy") };
    assert_eq!(contents.name(copy, "name_id"), "MEMORY_COPY_HOST_TO_DEVICE");
    let [arg] = contents.rows(rocpd::ARG) else { panic!("one arg") };
    assert_eq!((text(arg, "name"), text(arg, "value")), ("name".to_owned(), name.to_owned()));
    assert_eq!(arg["event_id"], copy["event_id"]);
    assert_eq!(json(copy)["name"], name);
}

#[test]
fn a_dispatch_whose_sizes_are_not_said_is_marked() {
    let kernel = |args: &str| {
        format!(r#"{{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":20,"dur":3,"args":{{{args}}}}}"#)
    };
    let sizes = |row: &crate::shard::Row| {
        ["grid_size_x", "grid_size_z", "workgroup_size_x"].map(|column| crate::int(row, column))
    };
    for (args, marks, wanted) in [
        (r#""grid":[8,4,1],"block":[256,1,1]"#, Json::Null, [8, 1, 256]),
        (r#""grid":[8,4,1]"#, json!({ "no_workgroup": true }), [8, 1, 0]),
        (r#""block":[256,1,1]"#, json!({ "no_grid": true }), [0, 0, 256]),
        (r#""grid":null,"block":"none""#, json!({ "no_grid": true, "no_workgroup": true }), [0, 0, 0]),
    ] {
        let (contents, _) = translated(&of_events("", &[&kernel(args)]));
        let [row] = contents.rows(rocpd::KERNEL_DISPATCH) else { panic!("one kernel") };
        assert_eq!(sizes(row), wanted, "{args}");
        let extdata = if marks.is_null() { Json::Null } else { json(row) };
        assert_eq!(extdata["rpd"], marks, "{args}");
    }
}
