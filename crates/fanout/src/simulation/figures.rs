//! What a simulated hall took.

use super::{Hall, STEPS_PER_CHUNK};

/// The figures of one run. Times are in steps; the figures for people are in times of one agent alone.
#[derive(Debug, Clone)]
pub struct Figures {
    hall: Hall,
    times: Vec<(u32, bool)>,
    /// Agents that did not get the image.
    pub unfinished: u32,
    /// Agents that died.
    pub died: u32,
    /// Chunks from the origin.
    pub origin: u64,
    /// Chunks that came into a rack from outside.
    pub across: u64,
    pub racks: u64,
    /// Grants of the claim table.
    pub grants: u64,
    /// Messages from agents to the control plane.
    pub calls: u64,
    /// Decisions of all agents.
    pub decisions: u64,
    /// Questions what a peer has.
    pub looks: u64,
    /// Chunks that came twice.
    pub twice: u64,
    /// Requests without an answer.
    pub unanswered: u64,
    /// Requests without room.
    pub busy: u64,
    /// Wrong chunks, and reports of them.
    pub lies: u64,
    /// Reports of liars.
    pub reports: u64,
    /// Chunks that came and are right.
    pub received: u64,
    /// Steps that agents stayed for others.
    pub lingered_steps: u64,
}

impl Figures {
    pub(super) fn new(hall: &Hall) -> Self {
        Self {
            hall: hall.clone(),
            times: Vec::new(),
            unfinished: 0,
            died: 0,
            origin: 0,
            across: 0,
            racks: 0,
            grants: 0,
            calls: 0,
            decisions: 0,
            looks: 0,
            twice: 0,
            unanswered: 0,
            busy: 0,
            lies: 0,
            reports: 0,
            received: 0,
            lingered_steps: 0,
        }
    }

    pub(super) fn finished(&mut self, steps: u32, is_slow: bool) {
        self.times.push((steps, is_slow));
    }

    fn ratio(&self, steps: u32) -> f64 {
        f64::from(steps) / f64::from(self.hall.chunks * STEPS_PER_CHUNK)
    }

    /// The time until all agents have the image, in times of one agent alone.
    #[must_use]
    pub fn last(&self) -> f64 {
        self.ratio(self.times.iter().map(|(steps, _)| *steps).max().unwrap_or(0))
    }

    /// The time until all agents of full speed have the image.
    #[must_use]
    pub fn last_of_fast(&self) -> f64 {
        let fast = self.times.iter().filter(|(_, is_slow)| !is_slow);
        self.ratio(fast.map(|(steps, _)| *steps).max().unwrap_or(0))
    }

    /// The median of the agents' times.
    #[must_use]
    pub fn median(&self) -> f64 {
        let mut times: Vec<u32> = self.times.iter().map(|(steps, _)| *steps).collect();
        times.sort_unstable();
        self.ratio(times.get(times.len() / 2).copied().unwrap_or(0))
    }

    /// Copies of the image that the origin sent.
    #[must_use]
    pub fn origin_copies(&self) -> f64 {
        self.origin as f64 / f64::from(self.hall.chunks)
    }

    /// Copies of the image that came into a rack, as a mean of all racks.
    #[must_use]
    pub fn copies_per_rack(&self) -> f64 {
        self.across as f64 / f64::from(self.hall.chunks) / self.racks as f64
    }

    /// One line of JSON.
    #[must_use]
    pub fn json(&self, name: &str, seconds: f64, resident_bytes: Option<u64>) -> String {
        let hall = &self.hall;
        let agents = f64::from(hall.agents);
        let resident_bytes = resident_bytes.map_or("null".to_owned(), |bytes| bytes.to_string());
        format!(
            "{{\"case\":\"{name}\",\"agents\":{},\"chunks\":{},\"rack\":{},\"slow_percent\":{},\"die_percent\":{},\
             \"spread\":{},\
             \"lose_table_percent\":{},\"liars_per_mille\":{},\"seed\":{},\"bound\":{:.4},\"last\":{:.4},\
             \"last_of_fast\":{:.4},\
             \"median\":{:.4},\"last_by_bound\":{:.4},\"origin_copies\":{:.3},\"copies_per_rack\":{:.3},\
             \"calls_per_agent\":{:.1},\"looks_per_agent\":{:.1},\"twice\":{},\"unanswered\":{},\"busy_per_agent\":{:.1},\
             \"lies\":{},\"reports\":{},\"lingered\":{:.3},\"died\":{},\"unfinished\":{},\"decisions\":{},\
             \"seconds\":{seconds:.2},\
             \"peak_resident_bytes\":{resident_bytes}}}",
            hall.agents,
            hall.chunks,
            hall.rack,
            hall.slow_percent,
            hall.die_percent,
            hall.spread,
            hall.lose_table_percent,
            hall.liars_per_mille,
            hall.seed,
            hall.bound(),
            self.last(),
            self.last_of_fast(),
            self.median(),
            self.last() / hall.bound(),
            self.origin_copies(),
            self.copies_per_rack(),
            self.calls as f64 / agents,
            self.looks as f64 / agents,
            self.twice,
            self.unanswered,
            self.busy as f64 / agents,
            self.lies,
            self.reports,
            self.lingered_steps as f64 / f64::from(hall.chunks * STEPS_PER_CHUNK) / agents,
            self.died,
            self.unfinished,
            self.decisions,
        )
    }
}

/// A picture of the time until all have the image over the number of agents, beside the bound, as SVG. Each point: agents,
/// the bound, the time; both in times of one agent alone.
#[must_use]
pub fn picture(points: &[(u32, f64, f64)]) -> String {
    const WIDTH: f64 = 640.0;
    const HEIGHT: f64 = 320.0;
    const LEFT: f64 = 60.0;
    const BOTTOM: f64 = 280.0;
    const TOP: f64 = 30.0;
    let most = points
        .iter()
        .map(|(agents, _, _)| f64::from(*agents).log10())
        .fold(1.0, f64::max);
    let x = |agents: u32| LEFT + f64::from(agents).log10() / most * (WIDTH - LEFT - 90.0);
    // From 1.0 to 1.3 times the time of one agent.
    let y = |ratio: f64| BOTTOM - (ratio - 1.0) / 0.3 * (BOTTOM - TOP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    for tenth in 0..=3 {
        let ratio = 1.0 + f64::from(tenth) / 10.0;
        let at = y(ratio);
        svg += &format!("<path d=\"M{LEFT} {at:.1}H{:.1}\" stroke=\"#ddd\"/>\n", WIDTH - 20.0);
        svg += &format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{ratio:.1} ×</text>\n",
            LEFT - 6.0,
            at + 4.0
        );
    }
    for (agents, _, _) in points {
        svg += &format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{agents}</text>\n",
            x(*agents),
            BOTTOM + 18.0
        );
    }
    let middle = LEFT + (WIDTH - LEFT) / 2.0;
    svg += &format!(
        "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">agents</text>\n",
        BOTTOM + 34.0
    );
    let lines = [("bound", "#888", 1), ("simulated", "#06c", 2)];
    for (name, colour, which) in lines {
        let value = |point: &(u32, f64, f64)| if which == 1 { point.1 } else { point.2 };
        let places: Vec<String> = points
            .iter()
            .map(|point| format!("{:.1},{:.1}", x(point.0), y(value(point))))
            .collect();
        svg += &format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n",
            places.join(" ")
        );
        if let Some(last) = points.last() {
            let (at, height) = (x(last.0) + 8.0, y(value(last)) + 4.0);
            svg += &format!("<text x=\"{at:.1}\" y=\"{height:.1}\" fill=\"{colour}\">{name}</text>\n");
        }
    }
    svg + "</svg>\n"
}
