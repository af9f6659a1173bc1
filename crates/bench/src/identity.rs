//! The same machines without and with a proof of their identity: the cost of attestation.

use serde::Serialize;

use crate::args::{FleetArgs, IdentityArg};
use crate::report::thousandths;

/// The order of the runs. A computer that becomes slower or faster meanwhile changes both means equally.
pub const ORDER: [IdentityArg; 4] = [IdentityArg::None, IdentityArg::Tpm, IdentityArg::Tpm, IdentityArg::None];

/// The arguments of one of the runs.
pub fn args(all: &FleetArgs, identity: IdentityArg, place: usize) -> FleetArgs {
    let keep = all.keep.as_ref().map(|dir| {
        let mut name = dir.clone().into_os_string();
        name.push(format!("-{}-{}", place + 1, identity.name()));
        name.into()
    });
    FleetArgs {
        identity,
        keep,
        ..all.clone()
    }
}

/// The cost of one run.
#[derive(Debug, Clone, Copy)]
pub struct Spending {
    pub seconds: f64,
    pub control_cpu_ms_per_node: f64,
}

/// The last line of a run with `--identity both`.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// Always "identity".
    phase: &'static str,
    nodes: usize,
    none: Mean,
    tpm: Mean,
    /// Processor time of the control plane: with TPMs divided by without.
    #[serde(serialize_with = "thousandths")]
    control_cpu_ratio: f64,
    /// Time of the whole run: with TPMs divided by without.
    #[serde(serialize_with = "thousandths")]
    seconds_ratio: f64,
}

/// The mean of the runs with one setting.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Mean {
    #[serde(serialize_with = "thousandths")]
    seconds: f64,
    #[serde(serialize_with = "thousandths")]
    control_cpu_ms_per_node: f64,
}

impl Mean {
    fn of(runs: &[(IdentityArg, Spending)], kind: IdentityArg) -> Self {
        let of_kind = || {
            runs.iter()
                .filter(|(identity, _)| *identity == kind)
                .map(|(_, run)| run)
        };
        let mean = |value: fn(&Spending) -> f64| of_kind().map(value).sum::<f64>() / of_kind().count() as f64;
        Self {
            seconds: mean(|run| run.seconds),
            control_cpu_ms_per_node: mean(|run| run.control_cpu_ms_per_node),
        }
    }
}

/// The cost of the proof by TPM.
pub fn compared(nodes: usize, runs: &[(IdentityArg, Spending)]) -> Comparison {
    let (none, tpm) = (Mean::of(runs, IdentityArg::None), Mean::of(runs, IdentityArg::Tpm));
    Comparison {
        phase: "identity",
        nodes,
        control_cpu_ratio: tpm.control_cpu_ms_per_node / none.control_cpu_ms_per_node,
        seconds_ratio: tpm.seconds / none.seconds,
        none,
        tpm,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_of_both_kinds_are_compared() {
        let run = |identity, seconds, control_cpu_ms_per_node| {
            let spending = Spending {
                seconds,
                control_cpu_ms_per_node,
            };
            (identity, spending)
        };
        let runs = [
            run(IdentityArg::None, 10.0, 4.0),
            run(IdentityArg::Tpm, 12.0, 5.0),
            run(IdentityArg::Tpm, 14.0, 7.0),
            run(IdentityArg::None, 16.0, 8.0),
        ];
        let compared = compared(100, &runs);
        assert_eq!((compared.none.seconds, compared.tpm.seconds), (13.0, 13.0));
        assert!((compared.seconds_ratio - 1.0).abs() < 1e-9 && (compared.control_cpu_ratio - 1.0).abs() < 1e-9);
    }
}
