//! Power and temperature of a simulated machine, by its phase.

use super::machine::{BootSource, Phase};
use super::profile::Profile;
use rackwright_sim_bmc::Climate;

/// Watts in standby, during a start, idle with a ramdisk, under the load of an installed system.
fn watts(profile: Profile) -> [f64; 4] {
    match profile {
        // NVIDIA's DGX H100 user guide: 10.2 kW at most; GPUs, fans and NICs idle at some 2 kW.
        Profile::DgxH100 => [80.0, 4500.0, 2000.0, 8500.0],
        Profile::Instant | Profile::Vm => [10.0, 300.0, 150.0, 250.0],
    }
}

pub(super) fn climate(profile: Profile, phase: Phase) -> Climate {
    let [standby, start, idle, load] = watts(profile);
    let (watts, board_celsius) = match phase {
        Phase::Off => (standby, 26.0),
        Phase::PoweringOn | Phase::Post | Phase::Hung | Phase::Booting(_) => (start, 45.0),
        Phase::Up(BootSource::Disk) => (load, 62.0),
        Phase::Up(_) | Phase::ShuttingDown | Phase::PoweringOff => (idle, 38.0),
    };
    Climate {
        watts,
        inlet_celsius: 24.0,
        board_celsius,
    }
}
