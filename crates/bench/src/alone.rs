//! The same machines alone and among all machines: the cost of a large number, per machine.

use serde::Serialize;

use crate::args::{FleetArgs, PhaseArg, name};
use crate::progress::{Edge, Tally};
use crate::report::thousandths;

/// The arguments of the run with few machines, derived from those of the run with all.
pub fn args(all: &FleetArgs, nodes: usize) -> FleetArgs {
    let keep = all.keep.as_ref().map(|dir| {
        let mut name = dir.clone().into_os_string();
        name.push("-alone");
        name.into()
    });
    let has_end = |phase: &PhaseArg| *phase == PhaseArg::Enrol || !stages(*phase).is_empty();
    FleetArgs {
        nodes,
        keep,
        phases: all.phases.iter().copied().filter(has_end).collect(),
        ..all.clone()
    }
}

/// The steps of a machine in a phase, in order, each with the edge that ends it.
fn stages(phase: PhaseArg) -> &'static [(PhaseArg, Edge)] {
    const LIFE: [(PhaseArg, Edge); 3] = [
        (PhaseArg::Inspect, Edge::Inspected),
        (PhaseArg::Deploy, Edge::Validated),
        (PhaseArg::Release, Edge::Erased),
    ];
    match phase {
        PhaseArg::Inspect => &LIFE[..1],
        PhaseArg::Deploy => &LIFE[1..2],
        PhaseArg::Release => &LIFE[2..],
        PhaseArg::Life => &LIFE,
        PhaseArg::Enrol | PhaseArg::List | PhaseArg::Idle | PhaseArg::Restart => &[],
    }
}

type PhaseTimes = (PhaseArg, Vec<f64>);

/// The seconds of each watched machine in each step.
#[derive(Debug, Default)]
pub struct Times {
    phases: Vec<PhaseTimes>,
    /// Machines are inspected as soon as they are enrolled: their time begins then.
    enrol_begun_s: Option<f64>,
}

impl Times {
    /// Stores the times of a phase that has just ended. A step begins with the phase, or when the machine ended the previous
    /// step.
    pub fn take(&mut self, phase: PhaseArg, begun_s: f64, watched: &[String], tally: &Tally) {
        if phase == PhaseArg::Enrol {
            self.enrol_begun_s = Some(begun_s);
        }
        let begun_s = match phase {
            PhaseArg::Inspect => self.enrol_begun_s.unwrap_or(begun_s),
            _ => begun_s,
        };
        let mut begun = vec![begun_s; watched.len()];
        for (stage, edge) in stages(phase) {
            let passed_s = watched.iter().map(|machine| tally.passed_s(machine, *edge));
            let ended: Vec<_> = passed_s.map(|at| at.unwrap_or(f64::NAN)).collect();
            let lasted = ended.iter().zip(&begun).map(|(end, begin)| end - begin);
            self.phases.push((*stage, lasted.collect()));
            begun = ended;
        }
        if phase == PhaseArg::Life {
            self.phases
                .push((phase, begun.iter().map(|end| end - begun_s).collect()));
        }
    }
}

/// The last line of a run with `--alone`.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// Always "alone".
    phase: &'static str,
    /// Machines that took part in both runs.
    machines: usize,
    /// Each phase that ends with an edge.
    phases: Vec<PhaseComparison>,
}

#[derive(Debug, Serialize)]
struct PhaseComparison {
    phase: &'static str,
    /// Seconds until the last of them had finished, alone.
    #[serde(serialize_with = "thousandths")]
    alone_s: f64,
    /// Seconds until the last of them had finished, among all.
    #[serde(serialize_with = "thousandths")]
    among_all_s: f64,
    /// Among all divided by alone: the mean of the machines' own ratios.
    #[serde(serialize_with = "thousandths")]
    ratio_mean: f64,
    /// The worst machine's ratio.
    #[serde(serialize_with = "thousandths")]
    ratio_worst: f64,
}

/// The ratio of the same machines' times among all and alone.
pub fn compared(alone: &Times, among_all: &Times, machines: usize) -> Comparison {
    let pairs = alone.phases.iter().zip(&among_all.phases);
    let phase = |((phase, alone), (_, among_all)): (&PhaseTimes, &PhaseTimes)| {
        let ratios: Vec<f64> = alone.iter().zip(among_all).map(|(alone, all)| all / alone).collect();
        let largest = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        PhaseComparison {
            phase: name(*phase),
            alone_s: largest(alone),
            among_all_s: largest(among_all),
            ratio_mean: ratios.iter().sum::<f64>() / ratios.len() as f64,
            ratio_worst: largest(&ratios),
        }
    };
    Comparison {
        phase: "alone",
        machines,
        phases: pairs.map(phase).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_machine_is_compared_with_itself() {
        let times = |seconds: &[f64]| Times {
            phases: vec![(PhaseArg::Inspect, seconds.to_vec())],
            ..Times::default()
        };
        let comparison = compared(&times(&[100.0, 200.0]), &times(&[110.0, 206.0]), 2);
        let phase = &comparison.phases[0];
        assert_eq!(
            (phase.phase, phase.alone_s, phase.among_all_s),
            ("inspect", 200.0, 206.0)
        );
        assert!((phase.ratio_mean - 1.065).abs() < 1e-9 && (phase.ratio_worst - 1.1).abs() < 1e-9);
    }
}
