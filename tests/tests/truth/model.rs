use rpd_graph::CallGraph;
use rpd_tests::truth::{CallRecording, PlantedExcess, Scenario, ScenarioKind, ScenarioSize};

/// A scenario without noise: 8 ranks, 40 steps of 10 ms, 0.5 ms more in rank 2.
fn exact(kind: ScenarioKind) -> Scenario {
    let size = ScenarioSize::drawn(kind, 1);
    Scenario::sized(kind, ScenarioSize { ranks: 8, subject: 2, steps: 40, noise: 0.0, ..size })
}

const MS: i64 = 1_000_000;

/// Gain by the formulas of the design, ns, to 0.1 ms.
fn gain_by_formula(scenario: &Scenario) -> Option<i64> {
    let size = &scenario.size;
    let (steps, excess) = (i64::from(size.steps), size.excess_ns as i64);
    match scenario.kind {
        ScenarioKind::OnDemand | ScenarioKind::StartUp | ScenarioKind::SlowNetwork => None,
        ScenarioKind::SlowMaster => Some(steps * (size.work_ns as i64 * 3 / 10 + excess)),
        ScenarioKind::Phase => Some(steps / 2 * excess),
        _ => Some(steps * excess),
    }
}

#[test]
fn without_noise_the_gain_is_that_of_the_formulas() {
    for kind in ScenarioKind::PLANTED {
        let scenario = exact(kind);
        let cost = scenario.cost();
        let Some(expected) = gain_by_formula(&scenario) else { continue };
        let name = kind.name();
        // Both neighbours of a rank with Sendrecv wait for the latency of its messages, where nobody else is late.
        let tolerance = if kind == ScenarioKind::SendReceive { MS / 5 } else { MS / 10 };
        assert!((cost.gain_ns - expected).abs() < tolerance, "{name}: {} and not {expected}", cost.gain_ns);
    }
}

#[test]
fn without_noise_all_others_wait_for_the_excess() {
    // In these, work is shared out, several ranks are slow, or some ranks do not wait in each step.
    let waits_otherwise = |kind: &ScenarioKind| {
        matches!(
            kind,
            ScenarioKind::Pipeline
                | ScenarioKind::Master
                | ScenarioKind::MasterUnknown
                | ScenarioKind::OnDemand
                | ScenarioKind::SlowMaster
                | ScenarioKind::StartUp
                | ScenarioKind::SlowNetwork
                | ScenarioKind::SlowNode
                | ScenarioKind::TwoStragglers
        )
    };
    for kind in ScenarioKind::PLANTED.into_iter().filter(|kind| !waits_otherwise(kind)) {
        let scenario = exact(kind);
        let others = i64::from(scenario.size.ranks) - 1;
        let expected = gain_by_formula(&scenario).unwrap() * others;
        let found = scenario.cost().waiting_ns;
        assert!((found - expected).abs() * 100 < expected, "{}: {found} and not {expected}", kind.name());
    }
}

#[test]
fn a_slow_network_costs_one_message_a_step_and_two_a_reduction() {
    let scenario = exact(ScenarioKind::SlowNetwork);
    let (steps, delay) = (i64::from(scenario.size.steps), scenario.size.excess_ns as i64);
    let gain = scenario.cost().gain_ns;
    let most = steps * delay + steps / 10 * 2 * delay;
    assert!((steps * delay..=most + MS / 10).contains(&gain), "{gain} of a delay of {delay}");
}

#[test]
fn tasks_on_demand_gain_less_than_one_task() {
    for seed in 0..4 {
        let scenario = Scenario::drawn(ScenarioKind::OnDemand, seed);
        let cost = scenario.cost();
        let task = (scenario.size.work_ns + scenario.size.excess_ns) as i64;
        assert!(cost.gain_ns < task && cost.gain_ns * 100 < cost.length_ns, "seed {seed}: {cost:?}");
    }
}

#[test]
fn a_late_start_gains_what_is_above_the_median() {
    let scenario = exact(ScenarioKind::StartUp);
    let cost = scenario.cost();
    assert!(cost.gain_ns > 0);
    assert!(cost.waiting_ns > cost.gain_ns);
}

#[test]
fn the_second_straggler_hides_half_of_the_first() {
    let scenario = exact(ScenarioKind::TwoStragglers);
    let half = scenario.cost().gain_ns / 2;
    let first = scenario.cost_without(PlantedExcess::AllBut(vec![scenario.size.subject]));
    assert!((first.gain_ns - half).abs() < MS / 10, "{first:?}");
    let second = scenario.size.subject + 2;
    let other = scenario.cost_without(PlantedExcess::AllBut(vec![second]));
    assert_eq!(other.gain_ns, 0);
}

#[test]
fn one_rank_of_a_slow_node_gains_nothing() {
    let scenario = exact(ScenarioKind::SlowNode);
    assert_eq!(scenario.cost_without(PlantedExcess::AllBut(vec![2])).gain_ns, 0);
    let node = scenario.cost_without(PlantedExcess::AllBut(vec![2, 3]));
    assert_eq!(node, scenario.cost());
}

#[test]
fn calls_of_all_scenarios_match_completely() {
    for kind in ScenarioKind::PLANTED.into_iter().chain(ScenarioKind::clean()) {
        let scenario = Scenario::drawn(kind, 5);
        let calls = scenario.calls(&CallRecording { keeps_messages: true, ..CallRecording::default() });
        let name = kind.name();
        let graph = CallGraph::new(&calls.job).unwrap_or_else(|error| panic!("{name}: {error}"));
        let counts = graph.message_counts();
        assert_eq!((counts.contradicted, counts.unmatched_sends), (0, 0), "{name}: {counts:?}");
        if kind != ScenarioKind::MasterUnknown {
            assert_eq!(counts.matched, calls.messages.len() as u64, "{name}: {counts:?}");
        }
        let instances = graph.instance_counts();
        assert_eq!((instances.incomplete, instances.mismatched), (0, 0), "{name}");
        assert!(instances.matched >= 2, "{name}: no MPI_Init");
    }
}

#[test]
fn the_same_seed_makes_the_same_calls() {
    let calls = || Scenario::drawn(ScenarioKind::Grid, 9).calls(&CallRecording::default());
    assert_eq!(calls().job, calls().job);
}
