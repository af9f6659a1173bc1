//! Cables that are in the wrong place or run at the wrong rate.

use std::collections::{BTreeMap, BTreeSet};

use super::{CableFault, FaultKind, View, cable_key, crossed};
use crate::model::{DeviceKind, LinkIx, PortRef};

/// Finds the cables. Returns the number of right cables. Cables that an exchange of devices explains do not count as right.
pub(super) fn find(
    view: &View<'_>,
    silent: &BTreeSet<LinkIx>,
    explained: &BTreeSet<LinkIx>,
    faults: &mut Vec<CableFault>,
) -> usize {
    let mut search = Search {
        view,
        slots: BTreeMap::new(),
        wrong: BTreeSet::new(),
        reported: BTreeSet::new(),
    };
    search.assign_slots();
    let right = search.rates(explained, faults);
    search.reported.extend(silent);
    search.swaps(faults);
    search.single(faults);
    search.extra(faults);
    right
}

struct Search<'a> {
    view: &'a View<'a>,
    /// The planned cable that should end at each discovered port.
    slots: BTreeMap<PortRef, LinkIx>,
    /// Planned cables that are not in their place.
    wrong: BTreeSet<LinkIx>,
    /// Wrong cables that already have a finding.
    reported: BTreeSet<LinkIx>,
}

impl Search<'_> {
    fn ends(&self, cable: LinkIx) -> [PortRef; 2] {
        let link = self.view.plan.fabric().link(cable);
        [link.a, link.b]
    }

    fn assign_slots(&mut self) {
        for (cable, _) in self.view.plan.fabric().links() {
            let places = self.ends(cable).map(|end| self.view.place(end));
            for place in places.into_iter().flatten() {
                self.slots.insert(place, cable);
            }
            let right = match places {
                [Some(a), Some(b)] => self.view.found.far_end(a) == Some(b),
                _ => false,
            };
            if !right {
                self.wrong.insert(cable);
            }
        }
    }

    /// Compares the widths and speeds of the cables in their places. Returns the number of cables that run as planned.
    fn rates(&self, explained: &BTreeSet<LinkIx>, faults: &mut Vec<CableFault>) -> usize {
        let mut right = 0;
        for (cable, _) in self.view.plan.fabric().links() {
            if self.wrong.contains(&cable) {
                continue;
            }
            match self.rate(cable) {
                Some(fault) => faults.push(fault),
                None => right += usize::from(!explained.contains(&cable)),
            }
        }
        right
    }

    fn rate(&self, cable: LinkIx) -> Option<CableFault> {
        let place = self.view.place(self.ends(cable)[0])?;
        let link = self.view.found.port(place)?.link?;
        let runs = self.view.found.link_rate(link)?;
        let wanted = self.view.plan.wanted(cable);
        let slow = wanted.speed.is_some_and(|speed| speed != runs.speed);
        let narrow = wanted.width.is_some_and(|width| width != runs.width);
        let kind = match (slow, narrow) {
            (true, _) => FaultKind::WrongSpeed,
            (false, true) => FaultKind::WrongWidth,
            (false, false) => return None,
        };
        let speed = wanted.speed.map(|speed| speed.to_string()).unwrap_or_default();
        let width = wanted.width.map(|width| width.to_string()).unwrap_or_default();
        let [a, b] = self.ends(cable).map(|end| self.view.plan.end_text(end));
        let text = format!(
            "{}: {a} to {b} runs at {runs}, planned is {width}{speed}",
            self.named(cable)
        );
        let fault = self.fault(kind, &[cable], text);
        Some(CableFault {
            runs: Some(runs),
            ..fault
        })
    }

    /// Such as `cable 0417`. A cable without a name is known by its ends, which the text includes anyway.
    fn named(&self, cable: LinkIx) -> String {
        match self.view.plan.cable_name(cable) {
            "" => "cable".to_owned(),
            name => format!("cable {name}"),
        }
    }

    fn fault(&self, kind: FaultKind, cables: &[LinkIx], text: String) -> CableFault {
        let ends = cables.iter().flat_map(|cable| self.ends(*cable));
        let devices: BTreeSet<_> = ends.map(|end| end.device).collect();
        CableFault {
            kind,
            cables: cables.iter().map(|cable| cable_key(self.view.plan, *cable)).collect(),
            devices: devices
                .into_iter()
                .map(|device| self.view.plan.device_text(device))
                .collect(),
            text,
            runs: None,
            replacements: Vec::new(),
        }
    }

    /// The wrong cable that belongs in the place of this end of `cable`.
    fn occupant_of(&self, cable: LinkIx, end: PortRef) -> Option<LinkIx> {
        let far = self.view.found.far_end(self.view.place(end)?)?;
        let other = *self.slots.get(&far)?;
        (other != cable && self.wrong.contains(&other) && !self.reported.contains(&other)).then_some(other)
    }

    /// Finds cables in each other's places: each cable occupies the place of the next one, and the last cable occupies the
    /// place of the first.
    fn swaps(&mut self, faults: &mut Vec<CableFault>) {
        for first in self.wrong.clone() {
            if self.reported.contains(&first) {
                continue;
            }
            if let Some(ring) = self.ring(first) {
                let text = self.ring_text(&ring);
                faults.push(self.fault(FaultKind::Swapped, &ring, text));
                self.reported.extend(ring);
            }
        }
    }

    fn ring(&self, first: LinkIx) -> Option<Vec<LinkIx>> {
        let mut ring = vec![first];
        let mut leave = self.ends(first)[0];
        loop {
            let cable = *ring.last()?;
            let next = self.occupant_of(cable, leave)?;
            let entered = self.view.found.far_end(self.view.place(leave)?)?;
            // Leaves through the end opposite to the entry.
            let ends = self.ends(next);
            leave = *ends.iter().find(|end| self.view.place(**end) != Some(entered))?;
            if next == first {
                return (ring.len() > 1 && leave == self.ends(first)[0]).then_some(ring);
            }
            if ring.contains(&next) {
                return None;
            }
            ring.push(next);
        }
    }

    fn ring_text(&self, ring: &[LinkIx]) -> String {
        let plan = self.view.plan;
        let names: Vec<String> = ring.iter().map(|cable| plan.cable_text(*cable)).collect();
        let mut goes = Vec::new();
        let mut rails = BTreeSet::new();
        for cable in ring {
            let [a, b] = self.ends(*cable);
            let there = self.view.place(a).and_then(|port| self.view.found.far_end(port));
            let words = there.map(|there| self.view.found_text(there)).unwrap_or_default();
            goes.push(format!(
                "{} should go to {}, goes to {words}",
                plan.end_text(a),
                plan.end_text(b)
            ));
            let planned = there.and_then(|there| self.view.planned(there));
            rails.extend(planned.and_then(|planned| crossed(plan, a, planned)));
        }
        let rails: String = rails.iter().map(|crossed| format!("; {crossed}")).collect();
        let how = if ring.len() == 2 {
            "are swapped"
        } else {
            "are in each other's places"
        };
        format!("{} {how}: {}{rails}", names.join(" and "), goes.join("; "))
    }

    /// Reports each wrong cable that is in no ring.
    fn single(&mut self, faults: &mut Vec<CableFault>) {
        for cable in self.wrong.clone() {
            if !self.reported.contains(&cable) {
                faults.push(self.one(cable));
            }
        }
    }

    fn one(&self, cable: LinkIx) -> CableFault {
        let [a, b] = self.ends(cable);
        let away = |end: PortRef| self.view.place(end).and_then(|port| self.view.found.far_end(port));
        let (at_a, at_b) = (away(a), away(b));
        let lead = self.named(cable);
        let (kind, text) = match (at_a, at_b) {
            (None, None) => (FaultKind::Missing, self.no_link(a, b)),
            (Some(there), None) => self.wrong_end(a, b, there),
            (None, Some(there)) => self.wrong_end(b, a, there),
            (Some(there), Some(beyond)) => {
                let (kind, text) = self.wrong_end(a, b, there);
                let words = self.view.found_text(beyond);
                (kind, format!("{text}; {} goes to {words}", self.view.plan.end_text(b)))
            }
        };
        self.fault(kind, &[cable], format!("{lead}: {text}"))
    }

    fn no_link(&self, a: PortRef, b: PortRef) -> String {
        let plan = self.view.plan;
        let unseen: Vec<String> = [a, b]
            .into_iter()
            .filter(|end| self.view.place(*end).is_none())
            .map(|end| plan.device_text(end.device))
            .collect();
        let unseen = if unseen.is_empty() {
            String::new()
        } else {
            format!(", and {} is not seen", unseen.join(" and "))
        };
        let (near, far) = (plan.end_text(a), plan.end_text(b));
        format!("no link from {near} to {far}{unseen}: unplugged, broken or switched off")
    }

    fn wrong_end(&self, near: PortRef, should: PortRef, there: PortRef) -> (FaultKind, String) {
        let plan = self.view.plan;
        let planned = self.view.planned(there);
        let right_device = planned.is_some_and(|planned| planned.device == should.device);
        let kind = if right_device {
            FaultKind::WrongPort
        } else {
            FaultKind::WrongDevice
        };
        let mut text = format!(
            "{} should go to {}, goes to {}",
            plan.end_text(near),
            plan.end_text(should),
            self.view.found_text(there)
        );
        if let Some(crossed) = planned.and_then(|planned| crossed(plan, near, planned)) {
            text.push_str(&format!("; {crossed}"));
        }
        (kind, text)
    }

    /// Reports links that are not planned and that no finding about a wrong cable explains.
    fn extra(&self, faults: &mut Vec<CableFault>) {
        for (_, link) in self.view.found.links() {
            let ends = [link.a, link.b];
            let kinds = ends.map(|end| self.view.found.device(end.device).kind);
            let inner = kinds
                .iter()
                .any(|kind| matches!(kind, DeviceKind::AggregationNode | DeviceKind::Router));
            let cables = ends.map(|end| self.slots.get(&end));
            let right = cables[0].is_some() && cables[0] == cables[1];
            let unknown = ends
                .iter()
                .any(|end| self.view.matching.planned_of(end.device).is_none());
            // A silent cable has no finding of its own, so a link at its port is reported here.
            let explained = cables.iter().flatten().any(|cable| self.by_single(cable));
            if inner || right || unknown || explained {
                continue;
            }
            let [a, b] = ends.map(|end| self.view.found_text(end));
            faults.push(CableFault {
                kind: FaultKind::Extra,
                cables: Vec::new(),
                devices: ends
                    .iter()
                    .filter_map(|end| self.view.matching.planned_of(end.device))
                    .map(|device| self.view.plan.device_text(device))
                    .collect(),
                text: format!("{a} is connected to {b}, but the plan has no such cable"),
                runs: None,
                replacements: Vec::new(),
            });
        }
    }

    /// Whether the finding about this cable covers the links at its ports.
    fn by_single(&self, cable: &LinkIx) -> bool {
        let hidden = self.ends(*cable).iter().any(|end| {
            let device = self.view.plan.fabric().device(end.device);
            device.is_switch() && self.view.place(*end).is_none()
        });
        self.wrong.contains(cable) && !hidden
    }
}
