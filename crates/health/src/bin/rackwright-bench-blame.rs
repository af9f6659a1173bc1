//! The figures of the search for culprits in simulated clusters (`docs/health.md`), as a table.

use rackwright_health::groups::simulation::Figures;

const SEEDS: u64 = 1000;

fn main() {
    let spreads = "tests: median, 95 %, most | rounds: median, 95 %, most";
    println!("| nodes | per leaf | bad | noise | precision | recall | element named | {spreads} |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for (nodes, per_leaf, bad, noise) in [
        (232, 32, 0, 0.0),
        (232, 32, 0, 0.01),
        (232, 32, 1, 0.01),
        (232, 32, 5, 0.0),
        (232, 32, 5, 0.01),
        (232, 32, 10, 0.01),
        (232, 29, 5, 0.01),
        (232, 4, 5, 0.01),
        (1024, 32, 5, 0.01),
        (64, 16, 3, 0.01),
        (16, 4, 1, 0.01),
    ] {
        let figures = Figures::of(nodes, per_leaf, bad, noise, SEEDS);
        let spread = |counts: &[usize]| {
            let quantile = |share| Figures::quantile(counts, share);
            format!("{}, {}, {}", quantile(0.5), quantile(0.95), quantile(1.0))
        };
        let named = match figures.right {
            0 => "-".to_owned(),
            right => format!("{:.3}", figures.right_element as f64 / right as f64),
        };
        println!(
            "| {nodes} | {per_leaf} | {bad} | {noise} | {:.4} ({} wrong) | {:.4} ({} missed) | {named} | {} | {} |",
            figures.precision(),
            figures.wrong,
            figures.recall(),
            figures.missed,
            spread(&figures.tests),
            spread(&figures.rounds),
        );
    }
}
