//! Why a request does not fit, the shortfall, and similar requests that fit.

use std::collections::BTreeMap;

use super::decide::{SMALL, attempt};
use super::exact::at_best;
use super::hall::Hall;
use super::ledger::Limit;
use super::request::{Bandwidth, Constraint, Nearest, Refusal, Request};
use super::view::{Effort, View};

/// Number of attempts with smaller requests: in a small hall, and in a big one.
const TRIES: [u32; 2] = [7, 3];
/// Maximum number of search steps for each attempt.
const STEPS: u64 = 2_000;
/// Maximum number of search steps for the number of nodes within the budgets.
const BUDGET_STEPS: u64 = 20_000;

/// A refusal without search.
pub(super) fn bare_refusal(constraint: Constraint, why: String) -> Refusal {
    Refusal {
        constraint,
        leaves: 0,
        asked: 0,
        short_w: 0,
        proven: true,
        nearest: Vec::new(),
        why,
    }
}

/// Refusals that do not depend on the hall's reservations.
pub(super) fn immediate_refusal(hall: &Hall, request: &Request) -> Option<Refusal> {
    let refusal = |constraint, why: String| Refusal {
        asked: request.size(),
        ..bare_refusal(constraint, why)
    };
    if request.nodes == 0 {
        return Some(refusal(Constraint::Empty, "no nodes are requested".to_owned()));
    }
    if hall.clusters.contains_key(&request.cluster) {
        let why = format!("cluster {} exists already", request.cluster.0);
        return Some(refusal(Constraint::Cluster(request.cluster), why));
    }
    let affinity = &request.affinity;
    let mut named = affinity.near.iter().chain(&affinity.apart).map(|n| n.0);
    if let Some(unknown) = named.find(|c| !hall.clusters.contains_key(c)) {
        let why = format!("the request refers to cluster {}, which does not exist", unknown.0);
        return Some(refusal(Constraint::Cluster(unknown), why));
    }
    if request.sku.at() >= hall.spec.skus.len() {
        return Some(refusal(Constraint::Nodes, "the SKU does not exist".to_owned()));
    }
    None
}

/// The constraint in the way.
struct Obstacle {
    constraint: Constraint,
    leaves: u32,
    short_w: u64,
    /// Whether the constraint certainly leaves too few nodes.
    proven: bool,
    why: String,
}

/// Explains why no placement was found.
pub(super) fn explain(hall: &Hall, request: &Request, effort: Effort) -> Refusal {
    let known = by_contract(hall, request).or_else(|| {
        let view = View::new(hall, request);
        by_node(&view).or_else(|| by_fabric(&view))
    });
    let small = hall.spec.nodes.len() <= SMALL;
    let most = match &known {
        Some(obstacle) => obstacle.leaves,
        // In a big hall, the number reached is a good guess, and there is no time for bad ones.
        None if small => request.size() - 1,
        None => effort.reached,
    };
    let fewer = fewer(hall, request, most);
    let obstacle = known.unwrap_or_else(|| by_links(request, effort, fewer.as_ref()));
    let less = relaxed(request, &obstacle.constraint)
        .into_iter()
        .find(|n| fits(hall, &n.request));
    Refusal {
        nearest: fewer.into_iter().chain(less).collect(),
        constraint: obstacle.constraint,
        leaves: obstacle.leaves,
        asked: request.size(),
        short_w: obstacle.short_w,
        proven: obstacle.proven || !effort.cut,
        why: obstacle.why,
    }
}

/// Explains why no placement was found for a change.
pub(super) fn explain_change(view: &View, effort: Effort) -> Refusal {
    let known = by_contract(view.hall, view.request).or_else(|| by_node(view));
    let obstacle = known.unwrap_or_else(|| Obstacle {
        constraint: Constraint::Links,
        leaves: effort.reached.clamp(view.kept_nodes(), view.size - 1),
        short_w: 0,
        proven: false,
        why: "there are enough nodes, but not in units with links that match those of the remaining nodes".to_owned(),
    });
    Refusal {
        constraint: obstacle.constraint,
        leaves: obstacle.leaves,
        asked: view.size,
        short_w: obstacle.short_w,
        proven: obstacle.proven || !effort.cut,
        nearest: Vec::new(),
        why: obstacle.why,
    }
}

fn by_contract(hall: &Hall, request: &Request) -> Option<Obstacle> {
    let watts = hall.spec.skus[request.sku.at()].watts;
    let (left, asked) = (hall.contract_left(request), request.size());
    let short_w = (watts * u64::from(asked)).checked_sub(left).filter(|&s| s > 0)?;
    let leaves = left
        .checked_div(watts)
        .map_or(asked, |n| u32::try_from(n).unwrap_or(asked));
    Some(Obstacle {
        constraint: Constraint::Contract,
        leaves,
        short_w,
        proven: true,
        why: format!(
            "the customer's contract is short of {short_w} W: it leaves {left} W, enough for {leaves} nodes of {asked}"
        ),
    })
}

fn by_links(request: &Request, effort: Effort, fewer: Option<&Nearest>) -> Obstacle {
    let asked = request.size();
    let found = fewer.map_or(0, |n| n.request.size());
    let leaves = effort.reached.min(asked - 1).max(found);
    Obstacle {
        constraint: Constraint::Links,
        leaves,
        short_w: 0,
        proven: false,
        why: format!(
            "there are enough nodes, but no units with enough free links for {asked} nodes; at most {leaves} were \
             found together"
        ),
    }
}

/// Applies the constraints on nodes one by one and stops at the one that leaves too few.
fn by_node(view: &View) -> Option<Obstacle> {
    let (hall, sku) = (view.hall, view.request.sku);
    let kept = view.kept_nodes();
    let asked = view.size - kept;
    let name = &hall.spec.skus[sku.at()].name;
    let mut free = 0;
    let mut refused: BTreeMap<u32, (Constraint, u32)> = BTreeMap::new();
    let admits_all = view.admits_all_free();
    if admits_all {
        free = view.cap();
    }
    for (at, unit) in hall.units.iter().enumerate().filter(|_| !admits_all) {
        let open = view.open(at as u32);
        for group in unit.groups.iter().filter(|g| g.hosts & open != 0) {
            if hall.traits[group.profile as usize].sku != sku.0 {
                continue;
            }
            let nodes = (group.hosts & open).count_ones();
            free += nodes;
            if let Some(constraint) = view.refuses(group.profile) {
                let (rank, _) = words(&constraint);
                refused.entry(rank).or_insert((constraint, 0)).1 += nodes;
            }
        }
    }
    if free < asked {
        let out: u32 = hall.units.iter().map(|u| (u.excluded & !u.taken).count_ones()).sum();
        let placed: usize = hall.units.iter().map(|u| u.nodes.len()).sum();
        let left_out = match hall.spec.nodes.len() - placed {
            0 => String::new(),
            nodes => format!("; {nodes} nodes of the hall are left out"),
        };
        return Some(Obstacle {
            constraint: Constraint::Nodes,
            leaves: kept + free,
            short_w: 0,
            proven: true,
            why: format!(
                "{free} nodes of {name} are free, {asked} are requested; {out} nodes are out of service{left_out}"
            ),
        });
    }
    let mut left = free;
    for (constraint, nodes) in refused.into_values() {
        left -= nodes;
        if left < asked {
            let (_, what) = words(&constraint);
            let why = format!("{what}: {left} free nodes of {name} remain, {asked} are requested");
            return Some(Obstacle {
                constraint,
                leaves: kept + left,
                short_w: 0,
                proven: true,
                why,
            });
        }
    }
    by_budget(view)
}

/// All fabrics together have enough nodes, and none of them alone.
fn by_fabric(view: &View) -> Option<Obstacle> {
    let (most, asked) = (view.cap_of_fabric(), view.size);
    if most >= asked {
        return None;
    }
    let name = &view.hall.spec.skus[view.request.sku.at()].name;
    let rails = match view.hall.has_impaired && view.request.needs_all_rails() {
        true => " with all rails",
        false => "",
    };
    Some(Obstacle {
        constraint: Constraint::Links,
        leaves: most,
        short_w: 0,
        proven: true,
        why: format!(
            "a cluster is in one fabric, and no fabric has more than {most} free nodes of {name}{rails}; {asked} are \
             requested"
        ),
    })
}

fn words(constraint: &Constraint) -> (u32, &'static str) {
    match constraint {
        Constraint::Affinity => (1, "the affinity leaves too few nodes"),
        Constraint::Dedication => (
            2,
            "circuits or cooling units are dedicated to other customers, or used by other customers",
        ),
        Constraint::Supplies => (3, "too few nodes have power supplies that survive the loss of a feed"),
        Constraint::Rails => (
            4,
            "nodes that lack a rail or have exchanged rails do not join a non-blocking cluster",
        ),
        _ => (5, "too few nodes"),
    }
}

/// Adds nodes while the budgets have room, regardless of links, and reports the budget that refused the most. Another
/// choice of nodes may fit more, so the number comes from the best choice, and an upper bound proves it.
fn by_budget(view: &View) -> Option<Obstacle> {
    if !view.is_tight() {
        return None;
    }
    let hall = view.hall;
    let mut trial = view.trial();
    let mut found = view.kept_nodes();
    let mut turned: BTreeMap<String, (Limit, u32)> = BTreeMap::new();
    for unit in 0..hall.units.len() as u32 {
        for (profile, hosts) in view.groups(unit) {
            let (nodes, room) = (hosts.count_ones(), trial.room(profile));
            let taken = nodes.min(room.nodes);
            trial.add(profile, taken);
            found += taken;
            if let Some(limit) = room.limit.filter(|_| taken < nodes) {
                let name = name(hall, &limit.what);
                turned.entry(name).or_insert((limit, 0)).1 += nodes - taken;
            }
        }
        if found >= view.size {
            return None;
        }
    }
    let units: Vec<u32> = (0..hall.units.len() as u32).collect();
    let packed = at_best(view, &units, &mut Effort::new(BUDGET_STEPS));
    let found = found.max(packed.found);
    if found >= view.size {
        return None;
    }
    let (name, (limit, nodes)) = turned.into_iter().max_by_key(|(_, (_, nodes))| *nodes)?;
    let missing = u64::from(nodes.min(view.size - found));
    let watts = !matches!(limit.what, Constraint::Spread);
    let short_w = if watts {
        (limit.each * missing).saturating_sub(limit.left % limit.each.max(1))
    } else {
        0
    };
    let by = if watts {
        format!(" by {short_w} W")
    } else {
        String::new()
    };
    Some(Obstacle {
        why: format!(
            "{name} is short{by}: the budgets have room for {found} nodes of {}",
            view.size
        ),
        constraint: limit.what,
        leaves: found,
        short_w,
        proven: packed.bound < view.size,
    })
}

fn name(hall: &Hall, constraint: &Constraint) -> String {
    match constraint {
        Constraint::Power(domain) => format!("power domain {}", hall.spec.domains[domain.at()].name),
        Constraint::FeedLoss(domain) => {
            let name = &hall.spec.domains[domain.at()].name;
            format!("power domain {name} after the loss of a feed")
        }
        Constraint::Cooling(unit) => format!("cooling unit {}", hall.spec.cooling[unit.at()].name),
        _ => "the limit of nodes under one label".to_owned(),
    }
}

fn fits(hall: &Hall, request: &Request) -> bool {
    attempt(hall, request, &mut Effort::new(STEPS)).is_some()
}

/// The maximum number of nodes that fit, up to `leaves`. Assumes that every smaller number fits, too.
fn fewer(hall: &Hall, request: &Request, leaves: u32) -> Option<Nearest> {
    let of_size = |size: u32| {
        let mut smaller = request.clone();
        smaller.spares = request.spares.min(size.saturating_sub(1));
        smaller.nodes = size - smaller.spares;
        smaller
    };
    let (mut fitting, mut too_many) = (0, leaves.min(request.size() - 1) + 1);
    let mut next = too_many - 1;
    let tries = TRIES[usize::from(hall.spec.nodes.len() > SMALL)];
    for _ in 0..tries {
        if next == 0 || next <= fitting {
            break;
        }
        if fits(hall, &of_size(next)) {
            fitting = next;
        } else {
            too_many = next;
        }
        next = fitting + (too_many - fitting) / 2;
    }
    (fitting > 0).then(|| {
        let request = of_size(fitting);
        let spares = match request.spares {
            0 => String::new(),
            n => format!(" and {n} spares"),
        };
        Nearest {
            change: format!("{} nodes{spares}", request.nodes),
            request,
        }
    })
}

/// The request with a weaker form of the constraint in the way.
fn relaxed(request: &Request, constraint: &Constraint) -> Vec<Nearest> {
    let with = |change: &str, relax: &dyn Fn(&mut Request)| {
        let mut relaxed = request.clone();
        relax(&mut relaxed);
        (relaxed != *request).then(|| Nearest {
            request: relaxed,
            change: change.to_owned(),
        })
    };
    let wider = |down, up, change: &str| with(change, &move |r| r.bandwidth = Bandwidth::Ratio { down, up });
    let slower = |down: u32| match request.bandwidth {
        Bandwidth::Ratio { down: d, up: u } => u64::from(d) < u64::from(down) * u64::from(u),
        Bandwidth::BestEffort => false,
    };
    let list = match constraint {
        Constraint::Links | Constraint::Rails => vec![
            slower(2)
                .then(|| wider(2, 1, "all of them at 2:1 oversubscription"))
                .flatten(),
            slower(4)
                .then(|| wider(4, 1, "all of them at 4:1 oversubscription"))
                .flatten(),
            with("all of them without guaranteed bandwidth", &|r| {
                r.bandwidth = Bandwidth::BestEffort
            }),
        ],
        Constraint::Dedication => vec![with("all of them on shared circuits and cooling units", &|r| {
            r.own_circuits = false;
            r.own_cooling = false;
        })],
        Constraint::FeedLoss(_) | Constraint::Supplies => {
            vec![with(
                "all of them without protection against the loss of a feed",
                &|r| r.survives_feed_loss = false,
            )]
        }
        Constraint::Affinity | Constraint::Spread => {
            vec![with("all of them without affinity", &|r| {
                r.affinity = super::request::Affinity::default()
            })]
        }
        _ => Vec::new(),
    };
    list.into_iter().flatten().collect()
}
