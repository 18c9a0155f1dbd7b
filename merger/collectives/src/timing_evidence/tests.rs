//! Generates jobs with known communicators and counts how often their times lead to the right groups.

use super::*;

/// SplitMix64 generator.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a value from 0 to 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[(self.next() % of.len() as u64) as usize]
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.share()).ln()
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.share()).ln()).sqrt() * (std::f64::consts::TAU * self.share()).cos()
    }
}

/// Distribution of the work before a call.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Normal,
    Uniform,
    Exponential,
}

/// The communicators of a generated job.
#[derive(Clone, Copy, Debug)]
enum Job {
    /// One communicator of all ranks.
    DataParallel,
    /// One per node. A node starts when the previous one has ended, after some work of its own.
    Pipeline,
    /// One per node. All nodes start a step at once, as after an allreduce that is not evaluated.
    Steps,
    /// One per node, each at its own pace.
    Apart,
    /// One for each half of the nodes. The second half starts when the first has ended.
    Halves,
    /// One for each half of the nodes. Both halves start at once.
    HalvesOfSteps,
}

/// Parameters of a job, ns.
#[derive(Clone, Copy, Debug)]
struct Plan {
    job: Job,
    nodes: usize,
    ranks: usize,
    /// Number of ranks of each node that are not recorded.
    hidden: usize,
    calls: usize,
    /// Standard deviation of the work before a call.
    work: f64,
    /// Standard deviation of the work of ranks that are not recorded.
    hidden_work: f64,
    shape: Shape,
    /// Spread of the exits of one collective.
    noise: f64,
}

impl Plan {
    fn any(job: Job, chance: &mut Chance) -> Plan {
        let work = chance.pick(&[50e3, 200e3, 1e6, 5e6]);
        Plan {
            job,
            nodes: chance.pick(&[2, 2, 3, 4, 8]),
            ranks: chance.pick(&[1, 2, 4, 8]),
            hidden: 0,
            calls: chance.pick(&[60, 200, 600]),
            work,
            hidden_work: work,
            shape: chance.pick(&[Shape::Normal, Shape::Uniform, Shape::Exponential]),
            noise: chance.pick(&[500.0, 2e3, 5e3]),
        }
    }

    fn rounds(&self, chance: &mut Chance) -> Vec<TimedRound> {
        let offsets: Vec<(f64, f64)> = (0..self.nodes)
            .map(|_| ((chance.share() - 0.5) * 1e15, (chance.share() - 0.5) * 40e-6))
            .collect();
        let stage = 2e6 + 20e6 * chance.share();
        let group_of = |node: usize| match self.job {
            Job::DataParallel => 0,
            Job::Halves | Job::HalvesOfSteps => node * 2 / self.nodes,
            _ => node,
        };
        let mut own_pace: Vec<f64> = vec![0.0; self.nodes];
        let mut rounds = Vec::new();
        for i in 0..self.calls {
            let step = i as f64 * 80e6 + chance.normal() * self.work;
            let kind = i as u64 % 3;
            let takes = [15e3, 40e3, 200e3][i % 3];
            let mut ends: Vec<f64> = Vec::new();
            let mut stays: Vec<Vec<(f64, f64)>> = Vec::new();
            for group in 0..=group_of(self.nodes - 1) {
                let begin = match self.job {
                    Job::Pipeline | Job::Halves if group > 0 => {
                        ends[group - 1] + stage + chance.normal() * chance.pick(&[1e3, self.noise])
                    }
                    Job::Apart => {
                        own_pace[group] += 80e6 + chance.normal() * self.work;
                        own_pace[group]
                    }
                    _ => step,
                };
                let nodes = (0..self.nodes).filter(|node| group_of(*node) == group).count();
                let mut enter = |sd: f64| begin + sd * self.work_of(chance);
                let entered: Vec<Vec<f64>> =
                    (0..nodes).map(|_| (0..self.ranks).map(|_| enter(self.work)).collect()).collect();
                let slow = if self.hidden_work < self.work { 3.0 * self.work } else { 0.0 };
                let unseen: Vec<f64> =
                    (0..nodes * self.hidden).map(|_| slow + enter(self.hidden_work)).collect();
                let all = entered.iter().flatten().chain(&unseen);
                let end =
                    all.fold(f64::NEG_INFINITY, |a, b| a.max(*b)) + takes * (1.0 + 0.01 * chance.normal());
                for ranks in entered {
                    let left = |enter: f64, chance: &mut Chance| {
                        let late = if chance.share() < 0.01 { 20e3 * chance.exponential() } else { 0.0 };
                        (enter, end + self.noise * chance.exponential() + late)
                    };
                    stays.push(ranks.into_iter().map(|enter| left(enter, chance)).collect());
                }
                ends.push(end);
            }
            let stay = |(ranks, (offset, drift)): (&Vec<(f64, f64)>, &(f64, f64))| {
                let local = |at: f64| (at * (1.0 + drift) + offset) as i64;
                let mut exits: Vec<f64> = ranks.iter().map(|rank| rank.1).collect();
                exits.sort_by(f64::total_cmp);
                DomainCall {
                    domain: 0,
                    enter: local(ranks.iter().map(|rank| rank.0).fold(f64::NEG_INFINITY, f64::max)),
                    exit: local(exits[(exits.len() - 1) / 2]),
                    first_exit: local(exits[0]),
                }
            };
            rounds.push(TimedRound { seq: 0, kind, stays: stays.iter().zip(&offsets).map(stay).collect() });
        }
        rounds
    }

    fn work_of(&self, chance: &mut Chance) -> f64 {
        match self.shape {
            Shape::Normal => chance.normal(),
            Shape::Uniform => chance.share() * 12.0_f64.sqrt(),
            Shape::Exponential => chance.exponential(),
        }
    }

    /// Returns whether the domains of one group shared one communicator.
    fn is_right(&self, part: &[usize]) -> bool {
        match self.job {
            Job::DataParallel => true,
            Job::Halves | Job::HalvesOfSteps => {
                let half = |node: usize| node * 2 / self.nodes;
                part.iter().all(|node| half(*node) == half(part[0]))
            }
            _ => false,
        }
    }
}

/// Returns the number of jobs in which unrelated domains were grouped, and of jobs in which every domain is in a
/// group.
fn judged(job: Job, jobs: u64, change: impl Fn(&mut Plan, &mut Chance)) -> (u64, u64) {
    let (mut wrong, mut whole) = (0, 0);
    for seed in 0..jobs {
        let mut chance = Chance(seed.wrapping_mul(0x1234_5678_9ABC_DEF1) ^ job as u64);
        let mut plan = Plan::any(job, &mut chance);
        if matches!(job, Job::Halves | Job::HalvesOfSteps) {
            plan.nodes = plan.nodes.max(4);
        }
        change(&mut plan, &mut chance);
        let found = evidence(&plan.rounds(&mut chance), plan.nodes);
        let known: usize = found.parts.iter().map(Vec::len).sum();
        assert!(known + found.rejected.len() + 1 >= plan.nodes, "everyone is told: {plan:?} {found:?}");
        if found.parts.iter().any(|part| !plan.is_right(part)) {
            wrong += 1;
            println!("wrong: {plan:?} {found:?}");
        }
        whole += u64::from(known == plan.nodes);
    }
    println!("{job:?}: {wrong} wrong, {whole} whole of {jobs}");
    (wrong, whole)
}

const SEPARATE: [Job; 5] = [Job::Pipeline, Job::Steps, Job::Apart, Job::Halves, Job::HalvesOfSteps];

#[test]
fn one_communicator_is_known_by_its_times() {
    let (_, whole) = judged(Job::DataParallel, 300, |_, _| {});
    assert!(whole >= 285, "{whole} of 300");
}

#[test]
fn groups_of_which_all_ranks_are_recorded_are_never_joined() {
    for job in SEPARATE {
        let (wrong, whole) = judged(job, 300, |_, _| {});
        assert_eq!(wrong, 0, "{job:?}");
        // Halves are communicators over several nodes.
        assert_eq!(whole >= 285, matches!(job, Job::Halves | Job::HalvesOfSteps), "{job:?}: {whole} of 300");
    }
    for job in [Job::Halves, Job::HalvesOfSteps] {
        assert_eq!(judged(job, 30, |plan, chance| plan.nodes = chance.pick(&[32, 64])).0, 0, "{job:?}");
    }
}

/// One rank of each node is recorded. It waits for ranks that are not in the inputs.
#[test]
fn groups_of_one_recorded_rank_are_hardly_ever_joined() {
    let mut wrong = 0;
    for job in SEPARATE {
        wrong += judged(job, 200, |plan, chance| (plan.ranks, plan.hidden) = (1, chance.pick(&[1, 3, 7]))).0;
        wrong += judged(job, 200, |plan, chance| {
            (plan.ranks, plan.hidden) = (1, chance.pick(&[1, 3, 7]));
            plan.hidden_work *= chance.pick(&[0.05, 0.3, 3.0]);
        })
        .0;
    }
    assert!(wrong <= 20, "{wrong} of 2,000");
}

#[test]
fn times_that_make_no_sense_are_no_evidence() {
    let extremes = [i64::MIN, -1, 0, i64::MAX];
    let mut chance = Chance(1);
    for domains in 1..4 {
        let stay = |chance: &mut Chance| DomainCall {
            domain: 0,
            enter: chance.pick(&extremes),
            exit: chance.pick(&extremes),
            first_exit: chance.pick(&extremes),
        };
        let round =
            |_| TimedRound { seq: 0, kind: 0, stays: (0..domains).map(|_| stay(&mut chance)).collect() };
        let rounds: Vec<TimedRound> = (0..100).map(round).collect();
        assert_eq!(evidence(&rounds, domains).parts, Vec::<Vec<usize>>::new());
        let same = vec![rounds[0].clone(); 100];
        assert_eq!(evidence(&same, domains).parts, Vec::<Vec<usize>>::new());
    }
    assert_eq!(evidence(&[], 3).rejected.len(), 2);
}
