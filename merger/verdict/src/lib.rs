//! Which rank the others wait for: analyses the calls of a run, and words the result.
//!
//! rpd-merge and rpd-report print the same verdict. [`AnalysedRun`] has the results of rpd-graph, and
//! [`verdict_lines`] words them, for people and as keys of a JSON object. [`RunVerdict`] is that object with its first
//! line.

mod analysed_run;
mod cause_evidence;
mod cpu_shortage;
mod crowded_cpus;
mod cut;
mod disk_wait;
mod doubts;
mod finding_threads;
mod gpu_speed;
mod hang;
mod hang_text;
mod lower_median;
mod more_work;
mod names;
mod network;
mod python_cause;
mod python_choice;
mod run_verdict;
mod sampled_share;
mod shown_time;
mod verdict;
mod why_not;
mod work_amounts;
mod work_cause;

pub use analysed_run::{AnalysedRun, AnalysisOptions};
pub use cut::{MAX_TEXT_CHARS, cut_middle, cut_texts};
pub use doubts::doubts;
pub use names::{label_text, only_rank_of, process_of, ranks_of, short};
pub use run_verdict::RunVerdict;
pub use shown_time::shown_time;
pub use verdict::verdict_lines;
pub use why_not::missing_reason;
