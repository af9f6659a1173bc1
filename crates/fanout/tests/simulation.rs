//! The aims of the fan-out, in small halls. `rackwright-bench-fanout` measures large ones.

use rackwright_fanout::simulation::{Figures, Hall, picture, run};

fn hall(change: impl FnOnce(&mut Hall)) -> Figures {
    let mut hall = Hall::plain(96, 256, 32);
    change(&mut hall);
    let figures = run(&hall);
    assert_eq!(figures.unfinished, 0, "agents without the image");
    figures
}

#[test]
fn a_hall_gets_the_image_in_the_time_of_one() {
    let figures = hall(|_| {});
    assert!(figures.last() <= 1.15, "{}", figures.last());
    assert!(
        figures.last() >= Hall::plain(96, 256, 32).bound(),
        "faster than can be: the network is wrong"
    );
    assert!(figures.origin_copies() <= 1.1, "{}", figures.origin_copies());
    assert!(figures.copies_per_rack() <= 1.05, "{}", figures.copies_per_rack());
    assert_eq!(figures.received, 96 * 256);
}

#[test]
fn slow_agents_do_not_hold_the_others() {
    let figures = hall(|hall| hall.slow_percent = 5);
    assert!(figures.last_of_fast() <= 1.2, "{}", figures.last_of_fast());
    assert!(figures.last() > 3.0, "no agent was slow");
}

#[test]
fn the_rest_finishes_when_agents_die() {
    let figures = hall(|hall| hall.die_percent = 10);
    assert!(figures.died > 0);
    assert!(figures.last() <= 1.25, "{}", figures.last());
    assert!(figures.origin_copies() <= 1.5, "{}", figures.origin_copies());
}

#[test]
fn a_lost_table_costs_traffic_only() {
    let figures = hall(|hall| hall.lose_table_percent = 50);
    assert!(figures.last() <= 1.25, "{}", figures.last());
    assert!(figures.origin_copies() <= 1.5, "{}", figures.origin_copies());
}

#[test]
fn a_liar_is_reported_once_by_each_and_delays_no_agent() {
    let figures = hall(|hall| hall.liars_per_mille = 1);
    assert!(figures.lies > 0, "the liar was asked");
    assert_eq!(figures.lies, figures.reports, "an agent asked a liar twice");
    assert!(figures.last() <= 1.25, "{}", figures.last());
}

#[test]
fn starts_over_a_long_time_need_few_copies_of_the_origin() {
    let figures = hall(|hall| hall.spread = 20);
    assert!(figures.origin_copies() <= 1.5, "{}", figures.origin_copies());
    assert!(figures.median() <= 1.25, "{}", figures.median());
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let figures = || hall(|hall| hall.die_percent = 10);
    let line = |figures: Figures| figures.json("die", 0.0, None);
    assert_eq!(line(figures()), line(figures()));
}

#[test]
fn the_picture_has_all_points() {
    let svg = picture(&[(64, 1.01, 1.07), (10_000, 1.03, 1.17)]);
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert_eq!(svg.matches("polyline").count(), 2);
    assert!(svg.contains(">10000<"));
}
